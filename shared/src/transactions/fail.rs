//! Second step of failing: the merge request is final and not merged, so the batch ends as FAILED.
//!
//! Guard: the batch is RUNNING or BLOCKED and `begin_fail` has said why.
//! Refusals: `Preempted`, `UnknownBatch`. Corruption: a content failure of several members.
//! Locks, in house order: gate, batch, waiting rows, operations, bindings, histories, outbox, targets.

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::outbox::Effect;
use crate::state::{BatchStatus, FailCause, MemberOutcome};
use crate::transactions::batch_row::{BatchRow, SettleOutcome, lock_gate_of};
use crate::transactions::members::{self, Ended, Member, MemberEnd};
use crate::tx::{Decision, Guarded, Tx, commit, refuse, rerun};

#[derive(Debug, Clone)]
pub struct Fail {
    pub batch: BatchId,
    pub by: String,
}

const FAIL_FAILING_BATCH: &str = "/* fail.fail_failing_batch */ \
    UPDATE merge_batch SET status = 3, code = fail_code, settled_at = CURRENT_TIMESTAMP(6), settled_by = ?, step = 'failed', \
        updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status IN (1, 4) AND fail_code IS NOT NULL";

impl Guarded for Fail {
    const NAME: &'static str = "fail";
    type Outcome = SettleOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<SettleOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(SettleOutcome::UnknownBatch) };
        if tx.write(FAIL_FAILING_BATCH, (&self.by, self.batch)).await? == 0 {
            return refuse(SettleOutcome::guard_lost(&row, tx.is_resumed(), &self.by));
        }
        let Some(cause) = row.fail_cause else { return rerun(SettleOutcome::Preempted { status: row.status }) };
        let batch = row.after_write();
        let members = members::read(tx, self.batch).await?;
        if cause == FailCause::Content && members.len() > 1 {
            return Err(StoreError::corrupt(format!(
                "batch {} fails by its content with {} members; only a batch of one convicts",
                self.batch,
                members.len()
            )));
        }
        let ends = members.into_iter().map(|member| end_of(member, cause, &row)).collect();
        tx.emit(&[Effect::publish_batch("batch.failed", &batch, BatchStatus::Failed), Effect::delete_branch(&batch)]).await?;
        match members::end(tx, &batch, &self.by, ends).await? {
            Ended::All => commit(SettleOutcome::Settled),
            Ended::Preempted => rerun(SettleOutcome::Preempted { status: row.status }),
        }
    }

    fn outcome_name(outcome: &SettleOutcome) -> &'static str {
        outcome.name()
    }
}

/// A wish to withdraw wins over waiting again and over FAILED; a person's rejection wins over it.
fn end_of(member: Member, cause: FailCause, row: &BatchRow) -> MemberEnd {
    let outcome = match cause {
        FailCause::Rejected => MemberOutcome::Rejected,
        FailCause::Content | FailCause::Infrastructure if member.withdraw_requested => MemberOutcome::Withdrawn,
        FailCause::Content => MemberOutcome::Failed,
        FailCause::Infrastructure => MemberOutcome::Requeued,
    };
    MemberEnd { member, outcome, code: row.fail_code.clone(), evidence: row.message.clone() }
}
