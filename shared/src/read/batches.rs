//! Batches and their members.

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId, PartitionKey, Principal, SubjectId, TargetKey};
use crate::read::view::{
    Listed, MergeRequestView, Page, action, batch_status, fail_cause_or_null, from_json, from_optional_json, member_outcome_or_null,
    operation_status, trigger,
};
use crate::state::{Action, BatchStatus, FailCause, MemberOutcome, OperationStatus, Trigger};
use crate::store::Store;

/// One batch in its current state. Times are RFC 3339, in UTC, with microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchView {
    pub batch_id: BatchId,
    pub partition: String,
    #[serde(deserialize_with = "batch_status")]
    pub status: BatchStatus,
    #[serde(deserialize_with = "trigger")]
    pub trigger: Trigger,
    pub requested_by: String,
    /// The branch that carries its commit.
    pub branch: String,
    /// The last step, or the pipeline status last seen.
    pub step: String,
    pub start_sha: Option<String>,
    pub head_sha: Option<String>,
    pub merge_sha: Option<String>,
    /// Set once it is decided that the batch fails, before it has failed.
    pub fail_code: Option<String>,
    #[serde(deserialize_with = "fail_cause_or_null")]
    pub fail_cause: Option<FailCause>,
    /// Why it ended, or is BLOCKED.
    pub code: Option<String>,
    pub message: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    pub progress_at: String,
    pub settled_at: Option<String>,
    pub settled_by: Option<String>,
    pub late_merged_at: Option<String>,
    /// Requests that it claimed.
    pub member_count: u64,
    #[serde(default)]
    pub merge_request: Option<MergeRequestView>,
}

/// One claim of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberView {
    pub operation_id: OperationId,
    /// Its place in the round.
    pub position: u64,
    /// How this claim ended; `None` while the batch is active.
    #[serde(deserialize_with = "member_outcome_or_null")]
    pub outcome: Option<MemberOutcome>,
    pub evidence: Option<String>,
    /// Of the request now, which may be in a later batch.
    #[serde(deserialize_with = "operation_status")]
    pub status: OperationStatus,
    #[serde(deserialize_with = "action")]
    pub action: Action,
    pub subject_id: SubjectId,
    pub target_key: TargetKey,
}

/// `$rows` chooses rows of `merge_batch`; `$order` keeps their order after the join.
macro_rules! select_batches {
    ($name:literal, $rows:literal, $order:literal) => {
        concat!(
            "/* ",
            $name,
            " */ SELECT JSON_OBJECT('batch_id', CAST(b.id AS CHAR), 'partition', b.partition_key, 'status', b.status, \
                'trigger', b.trigger_kind, 'requested_by', b.requested_by, \
                'branch', CONCAT('muster/', b.partition_key, '/', LOWER(HEX(b.claim_token))), 'step', b.step, \
                'start_sha', b.start_sha, 'head_sha', b.head_sha, 'merge_sha', b.merge_sha, \
                'fail_code', b.fail_code, 'fail_cause', b.fail_cause, 'code', b.code, 'message', b.message, \
                'created_at', DATE_FORMAT(b.created_at, '%Y-%m-%dT%H:%i:%s.%fZ'), \
                'updated_at', DATE_FORMAT(b.updated_at, '%Y-%m-%dT%H:%i:%s.%fZ'), \
                'progress_at', DATE_FORMAT(b.progress_at, '%Y-%m-%dT%H:%i:%s.%fZ'), \
                'settled_at', DATE_FORMAT(b.settled_at, '%Y-%m-%dT%H:%i:%s.%fZ'), 'settled_by', b.settled_by, \
                'late_merged_at', DATE_FORMAT(b.late_merged_at, '%Y-%m-%dT%H:%i:%s.%fZ'), \
                'member_count', (SELECT COUNT(*) FROM merge_batch_member m WHERE m.batch_id = b.id)), \
            CASE WHEN b.mr_iid IS NOT NULL THEN JSON_OBJECT('iid', CAST(b.mr_iid AS CHAR), 'url', b.mr_url) END \
            FROM (SELECT * FROM merge_batch ",
            $rows,
            ") b ",
            $order
        )
    };
}

const READ_BATCH: &str = select_batches!("batches.read", "WHERE id = ?", "");

const LIST_OF_ALL: &str = select_batches!("batches.list_of_all", "WHERE id < ? ORDER BY id DESC LIMIT ?", "ORDER BY b.id DESC");

/// Few are RUNNING and most SUCCEEDED: the optimizer sees which, and takes the index or the order.
const LIST_OF_STATUS: &str =
    select_batches!("batches.list_of_status", "WHERE status = ? AND id < ? ORDER BY id DESC LIMIT ?", "ORDER BY b.id DESC");

/// Within a partition the gate makes batches one after another: their times have the order of their ids.
const LIST_OF_PARTITION: &str = select_batches!(
    "batches.list_of_partition",
    "FORCE INDEX (idx_partition_created) WHERE partition_key = ? AND (? IS NULL OR status = ?) AND id < ? \
     ORDER BY created_at DESC, id DESC LIMIT ?",
    "ORDER BY b.created_at DESC, b.id DESC"
);

const LIST_MEMBERS: &str = "/* batches.list_members */ \
    SELECT JSON_OBJECT('operation_id', m.operation_id, 'position', m.position, 'outcome', m.outcome, 'evidence', m.evidence, \
        'status', o.status, 'action', o.action, 'subject_id', o.subject_id, 'target_key', o.target_key) \
    FROM merge_batch_member m JOIN operation o ON o.operation_id = m.operation_id \
    WHERE m.batch_id = ? AND (? IS NULL OR o.requested_by = ?) ORDER BY m.position, m.operation_id";

type Columns = (String, Option<String>);

pub async fn batch(store: &Store, id: BatchId) -> Result<Option<BatchView>, StoreError> {
    store.first::<Columns>(READ_BATCH, (id,)).await?.map(view_from).transpose()
}

/// A page of batches, newest first.
pub async fn batches(
    store: &Store,
    partition: Option<&PartitionKey>,
    status: Option<BatchStatus>,
    page: &Page<BatchId>,
) -> Result<Listed<BatchView>, StoreError> {
    let before = page.after.unwrap_or(BatchId(u64::MAX));
    let limit = page.limit + 1;
    let rows: Vec<Columns> = match (partition, status) {
        (Some(partition), status) => store.rows(LIST_OF_PARTITION, (partition, status, status, before, limit)).await?,
        (None, Some(status)) => store.rows(LIST_OF_STATUS, (status, before, limit)).await?,
        (None, None) => store.rows(LIST_OF_ALL, (before, limit)).await?,
    };
    let items = rows.into_iter().map(view_from).collect::<Result<Vec<_>, _>>()?;
    Ok(Listed::cut(items, page.limit, |one| one.batch_id.to_string()))
}

/// The members of a batch in their order: all, or those that one requester asked for.
pub async fn members(store: &Store, id: BatchId, requested_by: Option<&Principal>) -> Result<Vec<MemberView>, StoreError> {
    let rows = store.rows::<(String,)>(LIST_MEMBERS, (id, requested_by, requested_by)).await?;
    rows.into_iter().map(|(member,)| from_json("batches.list_members", &member)).collect()
}

fn view_from((batch, merge_request): Columns) -> Result<BatchView, StoreError> {
    Ok(BatchView { merge_request: from_optional_json("batches.read", merge_request)?, ..from_json("batches.read", &batch)? })
}
