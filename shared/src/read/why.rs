//! The facts behind the question what a request or a batch waits for.

use serde::Deserialize;

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId, PartitionKey};
use crate::read::view::from_json;
use crate::store::Store;

/// A request and its waiting row. Times are RFC 3339, in UTC; what is compared is compared by the database's clock.
#[derive(Debug, Clone, Deserialize)]
pub struct RequestFacts {
    pub operation_id: OperationId,
    pub partition: PartitionKey,
    pub status: String,
    pub action: String,
    pub code: Option<String>,
    pub message: Option<String>,
    pub batch_id: Option<BatchId>,
    pub created_at: String,
    pub updated_at: String,
    pub settled_at: Option<String>,
    pub withdraw_requested_at: Option<String>,
    pub expires_at: Option<String>,
    /// 1: its time has passed.
    pub is_expired: i64,
    /// 1: admitted in this very instant, so a round does not see it yet.
    pub is_too_new: i64,
}

/// A batch, its clocks and its limits.
#[derive(Debug, Clone, Deserialize)]
pub struct BatchFacts {
    pub batch_id: BatchId,
    pub partition: PartitionKey,
    pub status: String,
    pub step: String,
    pub code: Option<String>,
    pub message: Option<String>,
    pub fail_code: Option<String>,
    pub fail_at: Option<String>,
    pub mr_iid: Option<String>,
    pub mr_url: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    pub progress_at: String,
    pub settled_at: Option<String>,
    pub late_merged_at: Option<String>,
    /// When each of the three limits runs out.
    pub not_started_until: String,
    pub no_progress_until: String,
    pub total_until: String,
}

/// An effect that is intended and not performed yet, or was given up.
#[derive(Debug, Clone, Deserialize, serde::Serialize)]
pub struct PendingEffect {
    pub kind: String,
    pub due_at: String,
    pub attempts: u64,
    pub last_error: Option<String>,
    pub given_up_at: Option<String>,
}

macro_rules! time {
    ($expression:literal) => {
        concat!("DATE_FORMAT(", $expression, ", '%Y-%m-%dT%H:%i:%s.%fZ')")
    };
}

const READ_REQUEST: &str = concat!(
    "/* why.read_request */ SELECT JSON_OBJECT('operation_id', o.operation_id, 'partition', o.partition_key, \
     'status', ELT(o.status, 'WAITING', 'IN_BATCH', 'MERGED', 'REJECTED', 'FAILED', 'WITHDRAWN', 'CLOSED'), \
     'action', ELT(o.action, 'grant', 'revoke'), 'code', o.code, 'message', o.message, 'batch_id', CAST(o.batch_id AS CHAR), \
     'created_at', ",
    time!("o.created_at"),
    ", 'updated_at', ",
    time!("o.updated_at"),
    ", 'settled_at', ",
    time!("o.settled_at"),
    ", 'withdraw_requested_at', ",
    time!("o.withdraw_requested_at"),
    ", 'expires_at', ",
    time!("r.expires_at"),
    ", 'is_expired', IF(r.expires_at <= CURRENT_TIMESTAMP(6), 1, 0), 'is_too_new', IF(r.created_at >= CURRENT_TIMESTAMP(6), 1, 0)) \
     FROM operation o LEFT JOIN merge_batch_request r ON r.operation_id = o.operation_id WHERE o.operation_id = ?"
);

const READ_BATCH: &str = concat!(
    "/* why.read_batch */ SELECT JSON_OBJECT('batch_id', CAST(b.id AS CHAR), 'partition', b.partition_key, \
     'status', ELT(b.status, 'RUNNING', 'SUCCEEDED', 'FAILED', 'BLOCKED'), 'step', b.step, 'code', b.code, 'message', b.message, \
     'fail_code', b.fail_code, 'mr_iid', CAST(b.mr_iid AS CHAR), 'mr_url', b.mr_url, 'fail_at', ",
    time!("b.fail_at"),
    ", 'created_at', ",
    time!("b.created_at"),
    ", 'updated_at', ",
    time!("b.updated_at"),
    ", 'progress_at', ",
    time!("b.progress_at"),
    ", 'settled_at', ",
    time!("b.settled_at"),
    ", 'late_merged_at', ",
    time!("b.late_merged_at"),
    ", 'not_started_until', ",
    time!("b.runs_since + INTERVAL p.not_started_s SECOND"),
    ", 'no_progress_until', ",
    time!("b.progress_at + INTERVAL p.no_progress_s SECOND"),
    ", 'total_until', ",
    time!("b.runs_since + INTERVAL p.total_s SECOND"),
    ") FROM merge_batch b JOIN merge_partition p ON p.partition_key = b.partition_key WHERE b.id = ?"
);

/// Events only tell others; nothing waits for them.
const LIST_PENDING_EFFECTS: &str = concat!(
    "/* why.list_pending_effects */ SELECT JSON_OBJECT('kind', kind, 'attempts', attempts, 'last_error', last_error, 'due_at', ",
    time!("due_at"),
    ", 'given_up_at', ",
    time!("given_up_at"),
    ") FROM outbox FORCE INDEX (idx_batch) WHERE batch_id = ? AND kind <> 'publish' AND delivered_at IS NULL ORDER BY due_at LIMIT 50"
);

const READ_LATEST_START: &str =
    concat!("/* why.read_latest_start */ SELECT ", time!("created_at + INTERVAL ? SECOND"), " FROM merge_batch_request WHERE id = ?");

/// `None`: there is no such request.
pub async fn request(store: &Store, operation: &OperationId) -> Result<Option<RequestFacts>, StoreError> {
    let row = store.first::<(String,)>(READ_REQUEST, (operation,)).await?;
    row.map(|(facts,)| from_json("why.read_request", &facts)).transpose()
}

/// `None`: there is no such batch.
pub async fn batch(store: &Store, batch: BatchId) -> Result<Option<BatchFacts>, StoreError> {
    let row = store.first::<(String,)>(READ_BATCH, (batch,)).await?;
    row.map(|(facts,)| from_json("why.read_batch", &facts)).transpose()
}

/// What is still to be done for a batch, the next first.
pub async fn pending(store: &Store, batch: BatchId) -> Result<Vec<PendingEffect>, StoreError> {
    let rows = store.rows::<(String,)>(LIST_PENDING_EFFECTS, (batch,)).await?;
    rows.into_iter().map(|(effect,)| from_json("why.list_pending_effects", &effect)).collect()
}

/// When a waiting row has waited for so many seconds.
pub async fn has_waited_at(store: &Store, row: u64, seconds: u64) -> Result<Option<String>, StoreError> {
    Ok(store.first::<(Option<String>,)>(READ_LATEST_START, (seconds, row)).await?.and_then(|(at,)| at))
}
