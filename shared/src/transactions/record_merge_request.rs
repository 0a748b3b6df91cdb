//! Stores the merge request of a batch, and with it the wish to merge it.
//!
//! Guard: the batch is RUNNING, nobody has begun to fail it, and it has no merge request yet.
//! Where the guard is lost, the merge request is nobody's: it is stored if none is, and withdrawn.
//! Locks, in house order: gate, batch, outbox.

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::outbox::{Effect, kind};
use crate::transactions::batch_row::lock_gate_of;
use crate::transactions::deliveries::{DELIVER_LEASED_ROW, LeaseToken};
use crate::tx::{Decision, Guarded, Tx, commit, refuse};

#[derive(Debug, Clone)]
pub struct RecordMergeRequest {
    pub batch: BatchId,
    pub iid: u64,
    pub url: String,
    pub head_sha: String,
    /// The outbox row that this fulfils, if it is still leased to us.
    pub delivery: (String, LeaseToken),
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordMergeRequestOutcome {
    Recorded,
    /// It was stored before: this is its repetition.
    AlreadyRecorded,
    /// The batch went on without it; it is being withdrawn.
    Preempted,
    UnknownBatch,
}

const STORE_FIRST_MERGE_REQUEST: &str = "/* record_merge_request.store_first_of_running_batch */ \
    UPDATE merge_batch SET mr_iid = ?, mr_url = ?, head_sha = ?, step = 'merge_request_opened', \
        updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 1 AND fail_code IS NULL AND mr_iid IS NULL";

/// The settled or failing batch learns of its late merge request, so that it can be found by it.
const STORE_LATE_MERGE_REQUEST: &str = "/* record_merge_request.store_late_of_any_batch */ \
    UPDATE merge_batch SET mr_iid = ?, mr_url = ?, head_sha = ?, updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND mr_iid IS NULL";

impl Guarded for RecordMergeRequest {
    const NAME: &'static str = "record_merge_request";
    type Outcome = RecordMergeRequestOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<RecordMergeRequestOutcome>, StoreError> {
        let Some(row) = lock_gate_of(tx, self.batch).await? else { return refuse(RecordMergeRequestOutcome::UnknownBatch) };
        let columns = (self.iid, &self.url, &self.head_sha, self.batch);
        if tx.write(STORE_FIRST_MERGE_REQUEST, columns).await? == 1 {
            tx.emit(&[Effect::on_batch(kind::ARM_MERGE, &row.after_write())]).await?;
            self.mark_delivered(tx).await?;
            return commit(RecordMergeRequestOutcome::Recorded);
        }
        let may_run_on = row.status == crate::state::BatchStatus::Running && row.fail_code.is_none();
        if row.mr_iid == Some(self.iid) && may_run_on {
            self.mark_delivered(tx).await?;
            return commit(RecordMergeRequestOutcome::AlreadyRecorded);
        }
        let stored_late = tx.write(STORE_LATE_MERGE_REQUEST, columns).await? == 1;
        // A row whose version was not raised has emitted its withdrawal already, or is about to be swept.
        if stored_late {
            tx.emit(&[Effect::withdraw_merge_request(&row.after_write(), Some(self.iid))]).await?;
        }
        self.mark_delivered(tx).await?;
        commit(RecordMergeRequestOutcome::Preempted)
    }

    fn outcome_name(outcome: &RecordMergeRequestOutcome) -> &'static str {
        match outcome {
            RecordMergeRequestOutcome::Recorded => "recorded",
            RecordMergeRequestOutcome::AlreadyRecorded => "already_recorded",
            RecordMergeRequestOutcome::Preempted => "preempted",
            RecordMergeRequestOutcome::UnknownBatch => "unknown_batch",
        }
    }
}

impl RecordMergeRequest {
    async fn mark_delivered(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let (key, lease) = &self.delivery;
        // A lease that ran out belongs to somebody else, who will find the merge request recorded.
        tx.write(DELIVER_LEASED_ROW, (key, *lease)).await.map(drop)
    }
}
