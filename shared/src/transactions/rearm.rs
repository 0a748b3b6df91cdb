//! Has an effect of an active batch performed anew, where the forge shows that it does not hold any more: auto-merge
//! was dropped, was set again on a held batch, or a merge request of a failing one is open after all.
//!
//! Guard: the batch is in the state that wants this effect, and none of its kind is pending.
//! Refusal: `NotNeeded`. Locks: gate, batch, outbox.

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::outbox::{Effect, kind};
use crate::transactions::batch_row::lock_gate_of;
use crate::tx::{Decision, Guarded, Tx, commit, refuse};

/// Which effect, and so which state of the batch it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anew {
    /// RUNNING and not failing.
    Arm,
    /// BLOCKED and not failing.
    Disarm,
    /// Failing.
    Withdraw { iid: u64 },
}

#[derive(Debug, Clone)]
pub struct Rearm {
    pub batch: BatchId,
    pub effect: Anew,
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RearmOutcome {
    Rearmed,
    NotNeeded,
}

const READ_PENDING_EFFECT: &str = "/* rearm.read_pending_effect */ \
    SELECT 1 FROM outbox FORCE INDEX (idx_batch) \
    WHERE batch_id = ? AND kind = ? AND delivered_at IS NULL AND given_up_at IS NULL LIMIT 1";

const RAISE_RUNNING_BATCH: &str = "/* rearm.raise_running_opened_batch */ \
    UPDATE merge_batch SET updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 1 AND fail_code IS NULL AND mr_iid IS NOT NULL";

const RAISE_BLOCKED_BATCH: &str = "/* rearm.raise_blocked_opened_batch */ \
    UPDATE merge_batch SET updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 4 AND fail_code IS NULL AND mr_iid IS NOT NULL";

const RAISE_FAILING_BATCH: &str = "/* rearm.raise_failing_batch */ \
    UPDATE merge_batch SET updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status IN (1, 4) AND fail_code IS NOT NULL";

impl Guarded for Rearm {
    const NAME: &'static str = "rearm";
    type Outcome = RearmOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<RearmOutcome>, StoreError> {
        let (effect, raise) = match self.effect {
            Anew::Arm => (kind::ARM_MERGE, RAISE_RUNNING_BATCH),
            Anew::Disarm => (kind::DISARM_MERGE, RAISE_BLOCKED_BATCH),
            Anew::Withdraw { .. } => (kind::WITHDRAW_MERGE_REQUEST, RAISE_FAILING_BATCH),
        };
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(RearmOutcome::NotNeeded) };
        if tx.first::<(i64,)>(READ_PENDING_EFFECT, (self.batch, effect)).await?.is_some() || tx.write(raise, (self.batch,)).await? == 0 {
            return refuse(RearmOutcome::NotNeeded);
        }
        let batch = row.after_write();
        tx.emit(&[match self.effect {
            Anew::Arm | Anew::Disarm => Effect::on_batch(effect, &batch),
            Anew::Withdraw { iid } => Effect::withdraw_merge_request(&batch, Some(iid)),
        }])
        .await?;
        commit(RearmOutcome::Rearmed)
    }

    fn outcome_name(outcome: &RearmOutcome) -> &'static str {
        match outcome {
            RearmOutcome::Rearmed => "rearmed",
            RearmOutcome::NotNeeded => "not_needed",
        }
    }
}
