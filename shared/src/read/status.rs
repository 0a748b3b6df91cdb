//! What waits, what runs and what is late, over all partitions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::read::view::{MergeRequestView, batch_status, from_json, from_optional_json};
use crate::state::BatchStatus;
use crate::store::Store;

/// Answer of `GET /status`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatusView {
    /// By key.
    pub partitions: Vec<PartitionStatus>,
    pub outbox: OutboxStatus,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionStatus {
    pub partition: String,
    pub project: String,
    pub target_branch: String,
    /// Requests in the waiting set.
    #[serde(default)]
    pub waiting: u64,
    /// Seconds; `None` where nothing waits.
    #[serde(default)]
    pub oldest_waiting_age_s: Option<u64>,
    #[serde(default)]
    pub active_batch: Option<ActiveBatch>,
    /// `None` while rounds may run.
    #[serde(default)]
    pub paused: Option<Paused>,
    pub closed_at: Option<String>,
}

/// The batch that holds the slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActiveBatch {
    pub batch_id: BatchId,
    #[serde(deserialize_with = "batch_status")]
    pub status: BatchStatus,
    /// The last step, or the pipeline status last seen.
    pub step: String,
    /// Seconds since it was claimed.
    pub age_s: u64,
    /// Seconds since its last new step or pipeline status.
    pub progress_age_s: u64,
    /// Set once it is decided that the batch fails, until it has failed.
    pub fail_code: Option<String>,
    /// Why it is BLOCKED.
    pub code: Option<String>,
    #[serde(default)]
    pub merge_request: Option<MergeRequestView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    pub reason: String,
    pub by: String,
    /// `None`: until an operator resumes it.
    pub until: Option<String>,
}

/// Effects that are intended and not performed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OutboxStatus {
    /// Those not due yet included.
    pub undelivered: u64,
    pub overdue: u64,
    /// Seconds for which the longest overdue effect has been due; 0 where none is.
    pub lag_s: u64,
    /// Given up after too many attempts: an operator must look.
    pub given_up: u64,
}

const READ_PARTITIONS: &str = "/* status.read_partitions */ \
    SELECT JSON_OBJECT('partition', partition_key, 'project', project, 'target_branch', target_branch, \
            'closed_at', DATE_FORMAT(closed_at, '%Y-%m-%dT%H:%i:%s.%fZ')), \
        CASE WHEN pause_reason IS NOT NULL AND (pause_until IS NULL OR pause_until > CURRENT_TIMESTAMP(6)) THEN \
            JSON_OBJECT('reason', pause_reason, 'by', pause_by, 'until', DATE_FORMAT(pause_until, '%Y-%m-%dT%H:%i:%s.%fZ')) END \
    FROM merge_partition ORDER BY partition_key";

/// Reads the waiting set and nothing of what was claimed before.
const COUNT_WAITING_ROWS: &str = "/* status.count_waiting_rows */ \
    SELECT partition_key, COUNT(*), GREATEST(0, TIMESTAMPDIFF(SECOND, MIN(created_at), CURRENT_TIMESTAMP(6))) \
    FROM merge_batch_request FORCE INDEX (idx_batch) WHERE batch_id IS NULL GROUP BY partition_key";

const READ_ACTIVE_BATCHES: &str = "/* status.read_active_batches */ \
    SELECT partition_key, \
        JSON_OBJECT('batch_id', CAST(id AS CHAR), 'status', status, 'step', step, 'fail_code', fail_code, 'code', code, \
            'age_s', GREATEST(0, TIMESTAMPDIFF(SECOND, created_at, CURRENT_TIMESTAMP(6))), \
            'progress_age_s', GREATEST(0, TIMESTAMPDIFF(SECOND, progress_at, CURRENT_TIMESTAMP(6)))), \
        CASE WHEN mr_iid IS NOT NULL THEN JSON_OBJECT('iid', CAST(mr_iid AS CHAR), 'url', mr_url) END \
    FROM merge_batch FORCE INDEX (idx_status_updated) WHERE status IN (1, 4)";

const COUNT_UNDELIVERED_EFFECTS: &str = "/* status.count_undelivered_effects */ \
    SELECT COUNT(*), COUNT(CASE WHEN due_at <= CURRENT_TIMESTAMP(6) THEN 1 END), \
        GREATEST(0, COALESCE(TIMESTAMPDIFF(SECOND, MIN(due_at), CURRENT_TIMESTAMP(6)), 0)) \
    FROM outbox FORCE INDEX (idx_due) WHERE delivered_at IS NULL AND given_up_at IS NULL";

const COUNT_GIVEN_UP_EFFECTS: &str = "/* status.count_given_up_effects */ \
    SELECT COUNT(*) FROM outbox FORCE INDEX (idx_due) WHERE delivered_at IS NULL AND given_up_at IS NOT NULL";

/// The state of every partition and of the outbox. Read by several statements, so its parts may be moments apart.
pub async fn status(store: &Store) -> Result<StatusView, StoreError> {
    let waiting = store.rows::<(String, u64, u64)>(COUNT_WAITING_ROWS, ()).await?;
    let mut waiting: BTreeMap<String, (u64, u64)> =
        waiting.into_iter().map(|(partition, rows, age_s)| (partition, (rows, age_s))).collect();
    let mut active = active_batches(store).await?;
    let mut partitions = Vec::new();
    for (partition, paused) in store.rows::<(String, Option<String>)>(READ_PARTITIONS, ()).await? {
        let mut partition: PartitionStatus = from_json("status.read_partitions", &partition)?;
        partition.paused = from_optional_json("status.read_partitions", paused)?;
        partition.active_batch = active.remove(&partition.partition);
        if let Some((rows, age_s)) = waiting.remove(&partition.partition) {
            partition.waiting = rows;
            partition.oldest_waiting_age_s = Some(age_s);
        }
        partitions.push(partition);
    }
    Ok(StatusView { partitions, outbox: outbox(store).await? })
}

async fn active_batches(store: &Store) -> Result<BTreeMap<String, ActiveBatch>, StoreError> {
    let rows = store.rows::<(String, String, Option<String>)>(READ_ACTIVE_BATCHES, ()).await?;
    rows.into_iter()
        .map(|(partition, batch, merge_request)| {
            let merge_request = from_optional_json("status.read_active_batches", merge_request)?;
            Ok((partition, ActiveBatch { merge_request, ..from_json("status.read_active_batches", &batch)? }))
        })
        .collect()
}

async fn outbox(store: &Store) -> Result<OutboxStatus, StoreError> {
    let (undelivered, overdue, lag_s) = store.first::<(u64, u64, u64)>(COUNT_UNDELIVERED_EFFECTS, ()).await?.unwrap_or_default();
    let (given_up,) = store.first::<(u64,)>(COUNT_GIVEN_UP_EFFECTS, ()).await?.unwrap_or_default();
    Ok(OutboxStatus { undelivered, overdue, lag_s, given_up })
}
