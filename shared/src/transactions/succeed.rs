//! Ends an active batch as SUCCEEDED: its commit is on the target branch.
//!
//! Guard: the batch is RUNNING or BLOCKED. Refusals: `Preempted`, `UnknownBatch`.
//! Locks, in house order: gate, batch, waiting rows, operations, bindings, histories, outbox, targets.

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::outbox::{Effect, kind};
use crate::state::{BatchStatus, MemberOutcome};
use crate::transactions::batch_row::{SettleOutcome, lock_gate_of};
use crate::transactions::fail::suspects_wait;
use crate::transactions::members::{self, Ended, MemberEnd};
use crate::tx::{Decision, Guarded, Tx, commit, refuse, rerun};

/// Code of a batch whose rendered tree equals its base: there was nothing left to merge.
pub const ALREADY_APPLIED: &str = "already_applied";

#[derive(Debug, Clone)]
pub struct Succeed {
    pub batch: BatchId,
    /// Unique to this command: tells after an unanswered COMMIT that it was ours.
    pub by: String,
    pub merge_sha: Option<String>,
    pub code: Option<&'static str>,
}

const SUCCEED_ACTIVE_BATCH: &str = "/* succeed.succeed_active_batch */ \
    UPDATE merge_batch SET status = 2, merge_sha = ?, code = ?, settled_at = CURRENT_TIMESTAMP(6), settled_by = ?, step = 'succeeded', \
        updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status IN (1, 4)";

impl Guarded for Succeed {
    const NAME: &'static str = "succeed";
    type Outcome = SettleOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<SettleOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(SettleOutcome::UnknownBatch) };
        if tx.write(SUCCEED_ACTIVE_BATCH, (&self.merge_sha, self.code, &self.by, self.batch)).await? == 0 {
            return refuse(SettleOutcome::guard_lost(&row, tx.is_resumed(), &self.by));
        }
        let batch = row.after_write();
        let ends = members::read(tx, self.batch)
            .await?
            .into_iter()
            .map(|member| MemberEnd {
                member,
                outcome: MemberOutcome::Merged,
                peer_limit: None,
                code: self.code.map(str::to_owned),
                evidence: row.mr_url.clone(),
            })
            .collect();
        let mut effects = vec![Effect::publish_batch("batch.succeeded", &batch, BatchStatus::Succeeded), Effect::delete_branch(&batch)];
        if suspects_wait(tx, &row.partition).await? {
            effects.push(Effect::on_batch(kind::START_ROUND, &batch)); // A bisection does not wait for the schedule.
        }
        match members::end(tx, &batch, &self.by, ends, effects).await? {
            Ended::All => commit(SettleOutcome::Settled),
            Ended::Preempted => rerun(SettleOutcome::Preempted { status: row.status }),
        }
    }

    fn outcome_name(outcome: &SettleOutcome) -> &'static str {
        outcome.name()
    }
}
