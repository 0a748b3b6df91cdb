//! Has the merge of a running batch armed anew, where the forge has dropped auto-merge.
//!
//! Guard: the batch is RUNNING, not failing, has a merge request, and no arming is pending.
//! Refusal: `NotNeeded`. Locks: gate, batch, outbox.

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::outbox::{Effect, kind};
use crate::transactions::batch_row::lock_gate_of;
use crate::tx::{Decision, Guarded, Tx, commit, refuse};

#[derive(Debug, Clone)]
pub struct Rearm {
    pub batch: BatchId,
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RearmOutcome {
    Rearmed,
    NotNeeded,
}

const READ_PENDING_ARMING: &str = "/* rearm.read_pending_arming */ \
    SELECT 1 FROM outbox FORCE INDEX (idx_batch) \
    WHERE batch_id = ? AND kind = 'arm_merge' AND delivered_at IS NULL AND given_up_at IS NULL LIMIT 1";

const RAISE_RUNNING_BATCH: &str = "/* rearm.raise_running_opened_batch */ \
    UPDATE merge_batch SET updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 1 AND fail_code IS NULL AND mr_iid IS NOT NULL";

impl Guarded for Rearm {
    const NAME: &'static str = "rearm";
    type Outcome = RearmOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<RearmOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(RearmOutcome::NotNeeded) };
        if tx.first::<(i64,)>(READ_PENDING_ARMING, (self.batch,)).await?.is_some()
            || tx.write(RAISE_RUNNING_BATCH, (self.batch,)).await? == 0
        {
            return refuse(RearmOutcome::NotNeeded);
        }
        tx.emit(&[Effect::on_batch(kind::ARM_MERGE, &row.after_write())]).await?;
        commit(RearmOutcome::Rearmed)
    }

    fn outcome_name(outcome: &RearmOutcome) -> &'static str {
        match outcome {
            RearmOutcome::Rearmed => "rearmed",
            RearmOutcome::NotNeeded => "not_needed",
        }
    }
}
