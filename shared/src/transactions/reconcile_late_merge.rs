//! Takes back the failure of a batch that is on the target branch after all.
//!
//! The batch stays FAILED and says when it was found merged. Each member becomes MERGED wherever it had gone,
//! unless a later batch has it or it was merged by one; its relationship follows where it is still this
//! application's, and retakes its seat even above the capacity.
//!
//! Guards: the batch is FAILED and not yet found merged; each row in the state and version read.
//! Refusals: `Known`, `NotFailed`, `UnknownBatch`.
//! Locks, in house order: gate, batch, waiting rows, operations, bindings, histories, outbox, targets.

use serde_json::{Value, json};

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId};
use crate::outbox::{CausingBatch, Effect, PublishedRequest};
use crate::state::{Action, BatchStatus, BindingStatus, OperationStatus};
use crate::transactions::batch_row::lock_gate_of;
use crate::transactions::members::CHUNK;
use crate::transactions::seats::{self, Moved};
use crate::tx::{Decision, Guarded, Inserted, Tx, commit, refuse, rerun};

#[derive(Debug, Clone)]
pub struct ReconcileLateMerge {
    pub batch: BatchId,
    pub by: String,
    /// The commit by which it is on the target branch.
    pub merge_sha: String,
}

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReconcileLateMergeOutcome {
    /// So many members were brought to MERGED.
    Reconciled {
        members: usize,
    },
    /// It was found merged before.
    Known,
    NotFailed {
        status: BatchStatus,
    },
    UnknownBatch,
    Preempted,
}

const MARK_FAILED_BATCH_MERGED: &str = "/* reconcile_late_merge.mark_unmarked_failed_batch */ \
    UPDATE merge_batch SET late_merged_at = CURRENT_TIMESTAMP(6), merge_sha = ?, updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 3 AND late_merged_at IS NULL";

/// Members that were not expelled, with where they and their relationships are now.
const READ_GONE_MEMBERS: &str = "/* reconcile_late_merge.read_gone_members */ \
    SELECT o.operation_id, o.subject_id, o.target_key, o.action, o.status, o.version, r.id, \
           b.status, b.version, b.operation_id = o.operation_id \
    FROM merge_batch_member m \
    JOIN operation o ON o.operation_id = m.operation_id \
    JOIN binding b ON b.subject_id = o.subject_id AND b.target_key = o.target_key \
    LEFT JOIN merge_batch_request r ON r.operation_id = o.operation_id AND r.batch_id IS NULL \
    WHERE m.batch_id = ? AND m.outcome <> 6 AND o.status NOT IN (2, 3) ORDER BY o.operation_id";

const DELETE_WAITING_ROWS: &str = "/* reconcile_late_merge.delete_waiting_rows */ \
    DELETE r FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j \
    STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id WHERE r.batch_id IS NULL";

const MERGE_READ_OPERATIONS: &str = "/* reconcile_late_merge.merge_read_operations */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$.o', version BIGINT UNSIGNED PATH '$.v', \
        from_status TINYINT PATH '$.f')) AS j \
    STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.operation_id = j.operation_id \
    SET o.status = 3, o.batch_id = ?, o.code = 'late_merge', o.message = NULL, o.settled_at = CURRENT_TIMESTAMP(6), \
        o.updated_at = CURRENT_TIMESTAMP(6), o.version = o.version + 1 \
    WHERE o.status = j.from_status AND o.version = j.version";

const MOVE_READ_BINDINGS: &str = "/* reconcile_late_merge.move_read_bindings */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$.o', \
        subject_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$.u', \
        target_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$.t', \
        from_status TINYINT PATH '$.f', to_status TINYINT PATH '$.s', version BIGINT UNSIGNED PATH '$.v')) AS j \
    STRAIGHT_JOIN binding b FORCE INDEX (PRIMARY) ON b.subject_id = j.subject_id AND b.target_key = j.target_key \
    SET b.status = j.to_status, b.expiry_rejections = 0, \
        b.granted_by_operation_id = IF(j.to_status = 2, j.operation_id, b.granted_by_operation_id), \
        b.updated_at = CURRENT_TIMESTAMP(6), b.version = b.version + 1 \
    WHERE b.status = j.from_status AND b.version = j.version AND b.operation_id = j.operation_id";

const INSERT_BINDING_HISTORY: &str = "/* reconcile_late_merge.insert_binding_history */ \
    INSERT INTO binding_history (subject_id, target_key, operation_id, from_status, to_status, batch_id, actor) \
    SELECT j.subject_id, j.target_key, j.operation_id, j.from_status, j.to_status, ?, ? \
    FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) PATH '$.o', subject_id VARCHAR(128) PATH '$.u', target_key VARCHAR(128) PATH '$.t', \
        from_status TINYINT PATH '$.f', to_status TINYINT PATH '$.s')) AS j";

const INSERT_AUDIT: &str = "/* reconcile_late_merge.insert_audit */ \
    INSERT INTO audit_record (dedup_key, action, actor, partition_key, batch_id, after_state) VALUES (?, 'late_merge', ?, ?, ?, ?)";

struct GoneMember {
    operation: OperationId,
    subject_id: String,
    target_key: String,
    action: Action,
    status: OperationStatus,
    version: u64,
    waiting_row: Option<u64>,
    /// State and version of the relationship, where it is still this application's.
    binding: Option<(BindingStatus, u64)>,
}

impl GoneMember {
    /// Where its relationship goes: the state before, the state after, its version.
    fn binding_move(&self) -> Option<(BindingStatus, BindingStatus, u64)> {
        let to = if self.action == Action::Grant { BindingStatus::Active } else { BindingStatus::Closed };
        self.binding.map(|(from, version)| (from, to, version)).filter(|(from, to, _)| from != to)
    }
}

impl Guarded for ReconcileLateMerge {
    const NAME: &'static str = "reconcile_late_merge";
    type Outcome = ReconcileLateMergeOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<ReconcileLateMergeOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(ReconcileLateMergeOutcome::UnknownBatch) };
        if tx.write(MARK_FAILED_BATCH_MERGED, (&self.merge_sha, self.batch)).await? == 0 {
            return refuse(match row.status {
                BatchStatus::Failed => ReconcileLateMergeOutcome::Known,
                status => ReconcileLateMergeOutcome::NotFailed { status },
            });
        }
        let batch = row.after_write();
        let members = read_gone_members(tx, self.batch).await?;
        if !merge_operations(tx, self.batch, &members).await? || !self.move_bindings(tx, &members).await? {
            return rerun(ReconcileLateMergeOutcome::Preempted);
        }
        let audit = (format!("late_merge:{}", row.token.hex()), &self.by, &batch.partition, batch.id, self.after(&members));
        match tx.insert_new(INSERT_AUDIT, audit).await? {
            Inserted::New(_) | Inserted::Duplicate(_) => {} // A duplicate: already recorded.
        }
        tx.emit(&events(&batch, &members)).await?;
        let mut change = seats::Change::default();
        for member in &members {
            if let Some((from, to, _)) = member.binding_move() {
                change.note(&member.target_key, from, to);
            }
        }
        match seats::apply(tx, &change).await? {
            Moved::All => commit(ReconcileLateMergeOutcome::Reconciled { members: members.len() }),
            Moved::CapacityChanged => rerun(ReconcileLateMergeOutcome::Preempted),
        }
    }

    fn outcome_name(outcome: &ReconcileLateMergeOutcome) -> &'static str {
        match outcome {
            ReconcileLateMergeOutcome::Reconciled { .. } => "reconciled",
            ReconcileLateMergeOutcome::Known => "known",
            ReconcileLateMergeOutcome::NotFailed { .. } => "not_failed",
            ReconcileLateMergeOutcome::UnknownBatch => "unknown_batch",
            ReconcileLateMergeOutcome::Preempted => "preempted",
        }
    }
}

type Columns = (String, String, String, i64, i64, u64, Option<u64>, i64, u64, i64);

async fn read_gone_members(tx: &mut Tx<'_>, batch: BatchId) -> Result<Vec<GoneMember>, StoreError> {
    let rows = tx.rows::<Columns>(READ_GONE_MEMBERS, (batch,)).await?;
    rows.into_iter()
        .map(|(operation, subject_id, target_key, action, status, version, waiting_row, binding, binding_version, is_its)| {
            let binding = BindingStatus::from_code(binding)?;
            Ok(GoneMember {
                operation: OperationId::parse(operation).map_err(|why| StoreError::corrupt(why.to_string()))?,
                subject_id,
                target_key,
                action: Action::from_code(action)?,
                status: OperationStatus::from_code(status)?,
                version,
                waiting_row,
                binding: (is_its == 1).then_some((binding, binding_version)),
            })
        })
        .collect()
}

/// `false`: a member changed since it was read.
async fn merge_operations(tx: &mut Tx<'_>, batch: BatchId, members: &[GoneMember]) -> Result<bool, StoreError> {
    let mut waiting: Vec<u64> = members.iter().filter_map(|member| member.waiting_row).collect();
    waiting.sort_unstable();
    for chunk in waiting.chunks(CHUNK) {
        if tx.write(DELETE_WAITING_ROWS, (json!(chunk).to_string(),)).await? != chunk.len() as u64 {
            return Ok(false);
        }
    }
    for chunk in members.chunks(CHUNK) {
        let rows: Vec<Value> =
            chunk.iter().map(|member| json!({ "o": member.operation, "v": member.version, "f": member.status.code() })).collect();
        if tx.write(MERGE_READ_OPERATIONS, (json!(rows).to_string(), batch)).await? != chunk.len() as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

impl ReconcileLateMerge {
    async fn move_bindings(&self, tx: &mut Tx<'_>, members: &[GoneMember]) -> Result<bool, StoreError> {
        let mut moving: Vec<_> = members.iter().filter_map(|member| member.binding_move().map(|to| (member, to))).collect();
        moving.sort_by(|(a, _), (b, _)| (&a.subject_id, &a.target_key).cmp(&(&b.subject_id, &b.target_key)));
        for chunk in moving.chunks(CHUNK) {
            let rows: Vec<Value> = chunk
                .iter()
                .map(|(member, (from, to, version))| {
                    json!({ "o": member.operation, "u": member.subject_id, "t": member.target_key, "f": from.code(), "s": to.code(), "v": version })
                })
                .collect();
            let rows = json!(rows).to_string();
            if tx.write(MOVE_READ_BINDINGS, (rows.clone(),)).await? != chunk.len() as u64 {
                return Ok(false);
            }
            tx.write_exactly(chunk.len(), INSERT_BINDING_HISTORY, (self.batch, &self.by, rows)).await?;
        }
        Ok(true)
    }

    fn after(&self, members: &[GoneMember]) -> String {
        let ids: Vec<&OperationId> = members.iter().map(|member| &member.operation).collect();
        json!({ "merge_sha": self.merge_sha, "merged": ids }).to_string()
    }
}

fn events(batch: &CausingBatch, members: &[GoneMember]) -> Vec<Effect> {
    members
        .iter()
        .map(|member| {
            let request = PublishedRequest {
                operation: &member.operation,
                version: member.version + 1,
                partition: &batch.partition,
                batch: Some(batch.id),
                subject_id: &member.subject_id,
                target_key: &member.target_key,
                action: member.action,
                status: OperationStatus::Merged,
            };
            Effect::publish_request("request.merged", &request)
        })
        .collect()
}
