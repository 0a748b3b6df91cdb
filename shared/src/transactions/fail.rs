//! Second step of failing: the merge request is final and not merged, so the batch ends as FAILED.
//!
//! Guard: the batch is RUNNING or BLOCKED and `begin_fail` has said why.
//! Refusals: `Preempted`, `UnknownBatch`.
//! Locks, in house order: gate, batch, waiting rows, operations, bindings, histories, outbox, targets.

use crate::decide::bisect::peer_limit;
use crate::error::StoreError;
use crate::ids::{BatchId, PartitionKey};
use crate::outbox::{Effect, kind};
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

const READ_CONTENT_ATTEMPTS: &str = "/* fail.read_content_attempts */ SELECT content_attempts FROM merge_partition WHERE partition_key = ?";

const FIND_WAITING_SUSPECT: &str = "/* fail.find_waiting_suspect */ \
    SELECT 1 FROM merge_batch_request FORCE INDEX (idx_suspects_rank) \
    WHERE partition_key = ? AND batch_id IS NULL AND suspect_of IS NOT NULL LIMIT 1";

impl Guarded for Fail {
    const NAME: &'static str = "fail";
    type Outcome = SettleOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<SettleOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(SettleOutcome::UnknownBatch) };
        if tx.write(FAIL_FAILING_BATCH, (&self.by, self.batch)).await? == 0 {
            return refuse(SettleOutcome::guard_lost(&row, tx.is_resumed(), &self.by));
        }
        let Some(cause) = row.fail_cause else { return rerun(SettleOutcome::Preempted { status: row.status }) };
        let told = Told { cause, code: row.fail_code.clone(), evidence: row.message.clone() };
        end_members(tx, &row, &self.by, &told, Vec::new()).await
    }

    fn outcome_name(outcome: &SettleOutcome) -> &'static str {
        outcome.name()
    }
}

/// Why a batch ends as FAILED, as its members are told.
pub(super) struct Told {
    pub cause: FailCause,
    pub code: Option<String>,
    pub evidence: Option<String>,
}

/// What follows the batch's own guarded write, whichever unit made it: each member ends by the cause.
pub(super) async fn end_members(
    tx: &mut Tx<'_>,
    row: &BatchRow,
    by: &str,
    told: &Told,
    mut effects: Vec<Effect>,
) -> Result<Decision<SettleOutcome>, StoreError> {
    let batch = row.after_write();
    let members = members::read(tx, batch.id).await?;
    let (attempts_max,) = tx
        .first::<(u64,)>(READ_CONTENT_ATTEMPTS, (&row.partition,))
        .await?
        .ok_or_else(|| StoreError::corrupt(format!("the partition {} does not exist", row.partition)))?;
    let verdict = Verdict { told, members: members.len(), attempts_max };
    let ends: Vec<MemberEnd> = members.into_iter().map(|member| verdict.end_of(member)).collect();
    effects.extend([Effect::publish_batch("batch.failed", &batch, BatchStatus::Failed), Effect::delete_branch(&batch)]);
    if ends.iter().any(leaves_suspect) || suspects_wait(tx, &row.partition).await? {
        effects.push(Effect::on_batch(kind::START_ROUND, &batch)); // A bisection does not wait for the schedule.
    }
    match members::end(tx, &batch, by, ends, effects).await? {
        Ended::All => commit(SettleOutcome::Settled),
        Ended::Preempted => rerun(SettleOutcome::Preempted { status: row.status }),
    }
}

fn leaves_suspect(end: &MemberEnd) -> bool {
    end.outcome == MemberOutcome::Requeued && (end.peer_limit.is_some() || end.member.is_suspect)
}

/// Do suspects of an earlier batch wait in the partition?
pub(super) async fn suspects_wait(tx: &mut Tx<'_>, partition: &PartitionKey) -> Result<bool, StoreError> {
    Ok(tx.first::<(i64,)>(FIND_WAITING_SUSPECT, (partition,)).await?.is_some())
}

struct Verdict<'t> {
    told: &'t Told,
    members: usize,
    attempts_max: u64,
}

impl Verdict<'_> {
    /// A wish to withdraw wins over waiting again and over FAILED; a person's rejection wins over it.
    /// Of several that fail by content each is a suspect; only one alone is convicted.
    fn end_of(&self, member: Member) -> MemberEnd {
        let (outcome, peer_limit) = match self.told.cause {
            FailCause::Rejected => (MemberOutcome::Rejected, None),
            FailCause::Content | FailCause::Infrastructure if member.withdraw_requested => (MemberOutcome::Withdrawn, None),
            FailCause::Content if self.members == 1 => (MemberOutcome::Failed, None),
            FailCause::Content => (MemberOutcome::Requeued, Some(peer_limit(self.members, member.content_attempts + 1, self.attempts_max))),
            FailCause::Infrastructure => (MemberOutcome::Requeued, None),
        };
        MemberEnd { member, outcome, peer_limit, code: self.told.code.clone(), evidence: self.told.evidence.clone() }
    }
}
