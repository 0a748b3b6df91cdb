//! Holds a batch for a person: members and slot are kept, auto-merge is taken back.
//!
//! Guard: the batch is RUNNING and nobody has begun to fail it. Refusals: `Preempted`, `UnknownBatch`.
//! Locks: gate, batch, outbox.

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::outbox::{Effect, kind};
use crate::state::BatchStatus;
use crate::transactions::batch_row::{SettleOutcome, lock_gate_of};
use crate::tx::{Decision, Guarded, Tx, commit, refuse};

#[derive(Debug, Clone)]
pub struct Block {
    pub batch: BatchId,
    pub code: String,
    /// What a person reads: at most 1,024 characters.
    pub message: String,
}

const BLOCK_RUNNING_BATCH: &str = "/* block.block_running_unfailing_batch */ \
    UPDATE merge_batch SET status = 4, code = ?, message = ?, step = 'blocked', \
        updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 1 AND fail_code IS NULL";

impl Guarded for Block {
    const NAME: &'static str = "block";
    type Outcome = SettleOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<SettleOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(SettleOutcome::UnknownBatch) };
        if tx.write(BLOCK_RUNNING_BATCH, (&self.code, &self.message, self.batch)).await? == 0 {
            return refuse(SettleOutcome::Preempted { status: row.status });
        }
        let batch = row.after_write();
        tx.emit(&[Effect::on_batch(kind::DISARM_MERGE, &batch), Effect::publish_batch("batch.blocked", &batch, BatchStatus::Blocked)])
            .await?;
        commit(SettleOutcome::Settled)
    }

    fn outcome_name(outcome: &SettleOutcome) -> &'static str {
        outcome.name()
    }
}
