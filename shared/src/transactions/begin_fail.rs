//! First step of failing: says why, keeps the slot, and has the merge request withdrawn.
//!
//! Guard: the batch is RUNNING or BLOCKED and nobody has begun to fail it.
//! Refusals: `Preempted`, `UnknownBatch`. Locks: gate, batch, audit, outbox.

use serde_json::json;

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::outbox::Effect;
use crate::state::FailCause;
use crate::transactions::batch_row::{SettleOutcome, lock_gate_of};
use crate::tx::{Decision, Guarded, Inserted, Tx, commit, refuse};

#[derive(Debug, Clone)]
pub struct BeginFail {
    pub batch: BatchId,
    pub by: String,
    pub cause: FailCause,
    /// Stable word, such as `pipeline_failed`.
    pub code: String,
    /// What a person reads: at most 1,024 characters.
    pub message: String,
}

const BEGIN_FAIL_OF_ACTIVE_BATCH: &str = "/* begin_fail.mark_active_unfailing_batch */ \
    UPDATE merge_batch SET fail_code = ?, fail_cause = ?, message = ?, fail_at = CURRENT_TIMESTAMP(6), step = 'failing', \
        updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status IN (1, 4) AND fail_code IS NULL";

const RECORD_AUDIT: &str = "/* audit.record */ \
    INSERT INTO audit_record (dedup_key, action, actor, reason, partition_key, batch_id, before_state, after_state) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

impl Guarded for BeginFail {
    const NAME: &'static str = "begin_fail";
    type Outcome = SettleOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<SettleOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(SettleOutcome::UnknownBatch) };
        let key = format!("begin_fail:{}:{}", row.token.hex(), self.by);
        if tx.write(BEGIN_FAIL_OF_ACTIVE_BATCH, (&self.code, self.cause, &self.message, self.batch)).await? == 0 {
            if tx.is_resumed()
                && tx.first::<(i64,)>("/* begin_fail.was_ours */ SELECT 1 FROM audit_record WHERE dedup_key = ?", (&key,)).await?.is_some()
            {
                return refuse(SettleOutcome::Settled);
            }
            return refuse(SettleOutcome::Preempted { status: row.status });
        }
        let batch = row.after_write();
        let before = json!({ "status": row.status.name(), "version": row.version }).to_string();
        let after = json!({ "fail_code": self.code, "fail_cause": self.cause.name(), "version": batch.version }).to_string();
        let audit = (&key, "begin_fail", &self.by, &self.message, &batch.partition, batch.id, before, after);
        match tx.insert_new(RECORD_AUDIT, audit).await? {
            Inserted::New(_) | Inserted::Duplicate(_) => {} // A duplicate: already recorded.
        }
        tx.emit(&[Effect::withdraw_merge_request(&batch, row.mr_iid)]).await?;
        commit(SettleOutcome::Settled)
    }

    fn outcome_name(outcome: &SettleOutcome) -> &'static str {
        match outcome {
            SettleOutcome::Settled => "begun",
            other => other.name(),
        }
    }
}
