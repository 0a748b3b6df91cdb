//! Ends an active batch as FAILED on an operator's word, where forge and Git contradict each other or cannot be asked.
//!
//! Everywhere else `begin_fail` and `fail` are the way: they ask Git. Here somebody has looked, and answers for it that
//! the batch is not on the target branch. Should it merge all the same, that is a late merge, and reconciled as one.
//!
//! Guard: the batch is RUNNING or BLOCKED, failing or not, at the version that the operator was shown.
//! Refusals: `Preempted`, `UnknownBatch`.
//! Locks, in house order: gate, batch, waiting rows, operations, bindings, histories, outbox, targets.

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::outbox::Effect;
use crate::state::FailCause;
use crate::transactions::batch_row::{SettleOutcome, lock_gate_of};
use crate::transactions::fail::{Told, end_members};
use crate::tx::{Decision, Guarded, Tx, refuse};

#[derive(Debug, Clone)]
pub struct FailAsOrdered {
    pub batch: BatchId,
    /// Of the batch when the forge was looked at.
    pub version: u64,
    /// Unique to this command: tells after an unanswered COMMIT that it was ours.
    pub by: String,
    /// What becomes of the members, whatever the batch was failing for.
    pub cause: FailCause,
    /// Stable word, such as `aborted`.
    pub code: String,
    /// What a person reads: at most 1,024 characters.
    pub message: String,
}

const FAIL_ACTIVE_BATCH_OF_VERSION: &str = "/* fail_as_ordered.fail_active_batch_of_version */ \
    UPDATE merge_batch SET status = 3, code = ?, fail_code = ?, fail_cause = ?, message = ?, \
        fail_at = COALESCE(fail_at, CURRENT_TIMESTAMP(6)), settled_at = CURRENT_TIMESTAMP(6), settled_by = ?, step = 'failed', \
        updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status IN (1, 4) AND version = ?";

impl Guarded for FailAsOrdered {
    const NAME: &'static str = "fail_as_ordered";
    type Outcome = SettleOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<SettleOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(SettleOutcome::UnknownBatch) };
        let write = (&self.code, &self.code, self.cause, &self.message, &self.by, self.batch, self.version);
        if tx.write(FAIL_ACTIVE_BATCH_OF_VERSION, write).await? == 0 {
            return refuse(SettleOutcome::guard_lost(&row, tx.is_resumed(), &self.by));
        }
        let told = Told { cause: self.cause, code: Some(self.code.clone()), evidence: Some(self.message.clone()) };
        // Whatever of it is open after all is taken back.
        let withdraw = Effect::withdraw_merge_request(&row.after_write(), row.mr_iid);
        end_members(tx, &row, &self.by, &told, vec![withdraw]).await
    }

    fn outcome_name(outcome: &SettleOutcome) -> &'static str {
        outcome.name()
    }
}
