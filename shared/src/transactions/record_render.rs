//! Stores the commit a round starts from, and expels the members that cannot be rendered on it.
//!
//! Guard: the batch is RUNNING, nobody has begun to fail it, and its start is not stored yet.
//! Refusals: `Preempted`, `UnknownBatch`.
//! Locks, in house order: gate, batch, waiting rows, operations, bindings, histories, outbox, targets.

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId};
use crate::outbox::{CausingBatch, Effect};
use crate::state::{BatchStatus, MemberOutcome};
use crate::transactions::batch_row::lock_gate_of;
use crate::transactions::members::{self, Ended, MemberEnd};
use crate::tx::{Decision, Guarded, Tx, commit, refuse, rerun};

/// Code of a batch that no member was left of.
pub const EMPTY: &str = "empty";

/// A member that cannot be rendered, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expelled {
    pub operation: OperationId,
    /// `base_mismatch` or `path_not_allowed`.
    pub code: &'static str,
    pub reason: String,
}

#[derive(Debug, Clone)]
pub struct RecordRender {
    pub batch: BatchId,
    pub by: String,
    pub start_sha: String,
    pub expelled: Vec<Expelled>,
}

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordRenderOutcome {
    /// The start is stored; this many members are left.
    Recorded {
        left: usize,
    },
    /// Nobody was left: the batch ended as FAILED with code `empty`.
    Emptied,
    Preempted,
    UnknownBatch,
}

const STORE_START_OF_UNRENDERED_BATCH: &str = "/* record_render.start_running_unrendered_batch */ \
    UPDATE merge_batch SET start_sha = ?, step = 'rendered', \
        updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 1 AND fail_code IS NULL AND start_sha IS NULL";

const FAIL_EMPTY_BATCH: &str = "/* record_render.fail_running_empty_batch */ \
    UPDATE merge_batch SET status = 3, code = 'empty', settled_at = CURRENT_TIMESTAMP(6), settled_by = ?, step = 'failed', \
        updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 1 AND version = ?";

const READ_START: &str = "/* record_render.read_start */ SELECT start_sha FROM merge_batch WHERE id = ?";

impl Guarded for RecordRender {
    const NAME: &'static str = "record_render";
    type Outcome = RecordRenderOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<RecordRenderOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(RecordRenderOutcome::UnknownBatch) };
        if tx.write(STORE_START_OF_UNRENDERED_BATCH, (&self.start_sha, self.batch)).await? == 0 {
            return refuse(self.guard_lost(tx).await?);
        }
        let mut batch = row.after_write();
        let present = members::read(tx, self.batch).await?;
        let left = present.iter().filter(|member| self.reason_for(&member.operation).is_none()).count();
        let ends: Vec<MemberEnd> = present
            .into_iter()
            .filter_map(|member| {
                let expelled = self.reason_for(&member.operation)?;
                let (code, evidence) = (Some(expelled.code.to_owned()), Some(expelled.reason.clone()));
                Some(MemberEnd { member, outcome: MemberOutcome::Expelled, peer_limit: None, code, evidence })
            })
            .collect();
        let mut effects = Vec::new();
        if left == 0 {
            tx.write_exactly(1, FAIL_EMPTY_BATCH, (&self.by, self.batch, batch.version)).await?;
            batch = CausingBatch { version: batch.version + 1, ..batch };
            effects.push(Effect::publish_batch("batch.failed", &batch, BatchStatus::Failed));
        }
        match members::end(tx, &batch, &self.by, ends, effects).await? {
            Ended::Preempted => rerun(RecordRenderOutcome::Preempted),
            Ended::All if left == 0 => commit(RecordRenderOutcome::Emptied),
            Ended::All => commit(RecordRenderOutcome::Recorded { left }),
        }
    }

    fn outcome_name(outcome: &RecordRenderOutcome) -> &'static str {
        match outcome {
            RecordRenderOutcome::Recorded { .. } => "recorded",
            RecordRenderOutcome::Emptied => "emptied",
            RecordRenderOutcome::Preempted => "preempted",
            RecordRenderOutcome::UnknownBatch => "unknown_batch",
        }
    }
}

impl RecordRender {
    fn reason_for(&self, operation: &OperationId) -> Option<&Expelled> {
        self.expelled.iter().find(|one| one.operation == *operation)
    }

    /// After an unanswered COMMIT our own start may already be stored. Another runner that read the same
    /// head stores the same start, and rendering is a pure function of it: its answer is ours too.
    async fn guard_lost(&self, tx: &mut Tx<'_>) -> Result<RecordRenderOutcome, StoreError> {
        let stored = tx.first::<(Option<String>,)>(READ_START, (self.batch,)).await?.and_then(|(sha,)| sha);
        if !tx.is_resumed() || stored.as_ref() != Some(&self.start_sha) {
            return Ok(RecordRenderOutcome::Preempted);
        }
        let left = members::read(tx, self.batch).await?.len();
        Ok(if left == 0 { RecordRenderOutcome::Emptied } else { RecordRenderOutcome::Recorded { left } })
    }
}
