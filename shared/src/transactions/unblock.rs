//! Lets a BLOCKED batch run on: its attempts begin anew, and so do opening and arming.
//!
//! Guard: the batch is BLOCKED and nobody has begun to fail it. Refusals: `Preempted`, `UnknownBatch`.
//! Locks: gate, batch, waiting rows, outbox.

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::outbox::{Effect, kind};
use crate::transactions::batch_row::{SettleOutcome, lock_gate_of};
use crate::tx::{Decision, Guarded, Tx, commit, refuse};

#[derive(Debug, Clone)]
pub struct Unblock {
    pub batch: BatchId,
}

const UNBLOCK_BLOCKED_BATCH: &str = "/* unblock.run_blocked_unfailing_batch */ \
    UPDATE merge_batch SET status = 1, code = NULL, message = NULL, step = 'unblocked', \
        updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), runs_since = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 4 AND fail_code IS NULL";

const READ_CLAIMED_ROWS: &str = "/* unblock.read_claimed_rows */ SELECT id FROM merge_batch_request WHERE batch_id = ? ORDER BY id";

const FORGIVE_CLAIMED_ROWS: &str = "/* unblock.forgive_claimed_rows */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j \
    STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id \
    SET r.infra_attempts = 0, r.version = r.version + 1 WHERE r.batch_id = ?";

impl Guarded for Unblock {
    const NAME: &'static str = "unblock";
    type Outcome = SettleOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<SettleOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(SettleOutcome::UnknownBatch) };
        if tx.write(UNBLOCK_BLOCKED_BATCH, (self.batch,)).await? == 0 {
            return refuse(SettleOutcome::Preempted { status: row.status });
        }
        let batch = row.after_write();
        let rows: Vec<u64> = tx.rows::<(u64,)>(READ_CLAIMED_ROWS, (self.batch,)).await?.into_iter().map(|(id,)| id).collect();
        tx.write_exactly(rows.len(), FORGIVE_CLAIMED_ROWS, (serde_json::json!(rows).to_string(), self.batch)).await?;
        tx.emit(&[Effect::on_batch(kind::OPEN_MERGE_REQUEST, &batch), Effect::on_batch(kind::ARM_MERGE, &batch)]).await?;
        commit(SettleOutcome::Settled)
    }

    fn outcome_name(outcome: &SettleOutcome) -> &'static str {
        outcome.name()
    }
}
