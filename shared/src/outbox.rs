//! Intended effects, recorded in the transaction that causes them.

use serde_json::{Value, json};

use crate::error::StoreError;
use crate::ids::{BatchId, ClaimToken, OperationId, PartitionKey};
use crate::state::{Action, BatchStatus, OperationStatus};
use crate::tx::Tx;

/// A branch outlives the longest function time-out by five minutes, as the fence against a revived runner.
pub const DELETE_BRANCH_DELAY_S: u32 = 60 + 5 * 60;

/// Rows written by one INSERT.
const CHUNK: usize = 200;

/// Kinds of effects, as the column `outbox.kind` names them.
pub mod kind {
    pub const OPEN_MERGE_REQUEST: &str = "open_merge_request";
    pub const ARM_MERGE: &str = "arm_merge";
    pub const DISARM_MERGE: &str = "disarm_merge";
    pub const WITHDRAW_MERGE_REQUEST: &str = "withdraw_merge_request";
    pub const DELETE_BRANCH: &str = "delete_branch";
    pub const START_ROUND: &str = "start_round";
    pub const PUBLISH: &str = "publish";
}

/// One row to be written to the outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    dedup_key: String,
    kind: &'static str,
    partition: PartitionKey,
    batch: Option<BatchId>,
    operation: Option<OperationId>,
    payload: Value,
    due_in_s: u32,
}

/// The batch whose change causes an effect, after that change.
#[derive(Debug, Clone)]
pub struct CausingBatch {
    pub id: BatchId,
    pub partition: PartitionKey,
    pub token: ClaimToken,
    /// `version` after the write: makes a second open, arm or withdraw of one batch a new row.
    pub version: u64,
}

impl Effect {
    /// An effect on the forge, of one of the kinds in [`kind`].
    pub fn on_batch(kind: &'static str, batch: &CausingBatch) -> Self {
        Self {
            dedup_key: format!("{kind}:{}:{}", batch.token.hex(), batch.version),
            kind,
            partition: batch.partition.clone(),
            batch: Some(batch.id),
            operation: None,
            payload: json!({}),
            due_in_s: 0,
        }
    }

    /// Withdraws a merge request that the batch does not own (any more).
    pub fn withdraw_merge_request(batch: &CausingBatch, iid: Option<u64>) -> Self {
        Self { payload: json!({ "mr_iid": iid }), ..Self::on_batch(kind::WITHDRAW_MERGE_REQUEST, batch) }
    }

    pub fn delete_branch(batch: &CausingBatch) -> Self {
        Self { due_in_s: DELETE_BRANCH_DELAY_S, ..Self::on_batch(kind::DELETE_BRANCH, batch) }
    }

    /// Domain event `batch.claimed|succeeded|failed|blocked`.
    pub fn publish_batch(event: &'static str, batch: &CausingBatch, status: BatchStatus) -> Self {
        Self {
            dedup_key: format!("{event}:{}:{}", batch.token.hex(), batch.version),
            payload: json!({ "type": event, "batch_id": batch.id, "status": status.name() }),
            ..Self::on_batch(kind::PUBLISH, batch)
        }
    }

    /// Domain event `request.admitted|merged|rejected|failed|withdrawn`.
    pub fn publish_request(event: &'static str, request: &PublishedRequest<'_>) -> Self {
        Self {
            dedup_key: format!("{event}:{}:{}", request.operation, request.version),
            kind: kind::PUBLISH,
            partition: request.partition.clone(),
            batch: request.batch,
            operation: Some(request.operation.clone()),
            payload: json!({
                "type": event,
                "operation_id": request.operation,
                "batch_id": request.batch,
                "subject_id": request.subject_id,
                "target_key": request.target_key,
                "action": request.action.name(),
                "status": request.status.name(),
            }),
            due_in_s: 0,
        }
    }
}

/// What a `request.*` event tells.
pub struct PublishedRequest<'a> {
    pub operation: &'a OperationId,
    /// `operation.version` after the write.
    pub version: u64,
    pub partition: &'a PartitionKey,
    pub batch: Option<BatchId>,
    pub subject_id: &'a str,
    pub target_key: &'a str,
    pub action: Action,
    pub status: OperationStatus,
}

/// The event of a request's new state, where there is one.
pub fn request_event(status: OperationStatus) -> Option<&'static str> {
    match status {
        OperationStatus::Merged => Some("request.merged"),
        OperationStatus::Rejected => Some("request.rejected"),
        OperationStatus::Failed => Some("request.failed"),
        OperationStatus::Withdrawn | OperationStatus::Closed => Some("request.withdrawn"),
        OperationStatus::Waiting | OperationStatus::InBatch => None,
    }
}

const INSERT_NEW_EFFECTS: &str = "/* outbox.insert_new_effects */ \
    INSERT INTO outbox (dedup_key, kind, partition_key, batch_id, operation_id, payload, due_at) \
    SELECT j.dedup_key, j.kind, j.partition_key, j.batch_id, j.operation_id, j.payload, \
           CURRENT_TIMESTAMP(6) + INTERVAL j.due_in_s SECOND \
    FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        dedup_key VARCHAR(191) PATH '$.k', kind VARCHAR(32) PATH '$.d', partition_key VARCHAR(64) PATH '$.p', \
        batch_id BIGINT UNSIGNED PATH '$.b', operation_id VARCHAR(36) PATH '$.o', \
        payload LONGTEXT PATH '$.l', due_in_s INT PATH '$.s')) AS j";

impl Tx<'_> {
    /// Records intended effects, last in the house order of locks. A key that is there already means
    /// that the causing row's version was not raised, and rolls the unit back.
    pub async fn emit(&mut self, effects: &[Effect]) -> Result<(), StoreError> {
        for chunk in effects.chunks(CHUNK) {
            let rows: Vec<Value> = chunk
                .iter()
                .map(|effect| {
                    json!({
                        "k": effect.dedup_key, "d": effect.kind, "p": effect.partition, "b": effect.batch.map(|id| id.0),
                        "o": effect.operation, "l": effect.payload.to_string(), "s": effect.due_in_s,
                    })
                })
                .collect();
            self.write_exactly(chunk.len(), INSERT_NEW_EFFECTS, (Value::Array(rows).to_string(),)).await?;
        }
        Ok(())
    }
}
