//! Notes a new step or pipeline status: only what is new moves `progress_at`.
//!
//! Guard: the batch is RUNNING and its step is another one. Refusal: `Unchanged`. Lock: batch.

use crate::error::StoreError;
use crate::ids::BatchId;
use crate::tx::{Decision, Guarded, Tx, commit, refuse};

#[derive(Debug, Clone)]
pub struct NoteProgress {
    pub batch: BatchId,
    /// At most 64 ASCII characters, such as `pipeline_underway`.
    pub step: &'static str,
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteProgressOutcome {
    Moved,
    Unchanged,
}

const NOTE_NEW_STEP: &str = "/* note_progress.note_new_step_of_running_batch */ \
    UPDATE merge_batch SET step = ?, updated_at = CURRENT_TIMESTAMP(6), progress_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE id = ? AND status = 1 AND fail_code IS NULL AND step <> ?";

impl Guarded for NoteProgress {
    const NAME: &'static str = "note_progress";
    type Outcome = NoteProgressOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<NoteProgressOutcome>, StoreError> {
        match tx.write(NOTE_NEW_STEP, (self.step, self.batch, self.step)).await? {
            0 => refuse(NoteProgressOutcome::Unchanged),
            _ => commit(NoteProgressOutcome::Moved),
        }
    }

    fn outcome_name(outcome: &NoteProgressOutcome) -> &'static str {
        match outcome {
            NoteProgressOutcome::Moved => "moved",
            NoteProgressOutcome::Unchanged => "unchanged",
        }
    }
}
