//! Removes a batch's branch when it has served as a fence for long enough.

use shared::read::round::Round;
use shared::state::BatchStatus;

use super::{EffectError, Effected, Performed, Relay, project_of};
use crate::forge::{Containment, Forge};
use crate::queue::EventSink;
use crate::settlement::carried;

impl<F: Forge, E: EventSink> Relay<F, E> {
    pub(super) async fn delete_branch(&self, round: Round) -> Effected {
        if round.status.is_active() {
            return Ok(Performed::GiveUp { why: "the batch is active, so its branch is kept".into() });
        }
        // Of a failed batch, Git is asked once more before its last trace goes.
        if round.status == BatchStatus::Failed && self.is_merged_after_all(&round).await? {
            tracing::error!(event = "alarm", alarm = "late_merge", batch = %round.id, branch = round.branch());
            return Ok(Performed::GiveUp {
                why: "the failed batch is on the target branch after all; its branch is kept for whoever looks into it".into(),
            });
        }
        self.forge.delete_branch(&project_of(&round), &round.branch()).await?;
        Ok(Performed::Done)
    }

    async fn is_merged_after_all(&self, round: &Round) -> Result<bool, EffectError> {
        let Some(carried) = carried(&self.store, round, None).await? else { return Ok(false) };
        Ok(matches!(self.forge.target_contains(&project_of(round), &carried).await?, Containment::Yes { .. }))
    }
}
