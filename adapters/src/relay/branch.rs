//! Removes a batch's branch when it has served as a fence for long enough.

use shared::read::round::Round;
use shared::state::BatchStatus;

use super::{EffectError, Effected, Performed, Relay, project_of};
use crate::forge::{Containment, Forge};
use crate::outbound::Outbound;
use crate::settlement::{carried, reconcile};

impl<F: Forge, E: Outbound> Relay<F, E> {
    pub(super) async fn delete_branch(&self, round: Round) -> Effected {
        if round.status.is_active() {
            return Ok(Performed::GiveUp { why: "the batch is active, so its branch is kept".into() });
        }
        // Of a failed batch, Git is asked once more before its last trace goes.
        if round.status == BatchStatus::Failed
            && let Some(merge_sha) = self.merged_after_all(&round).await?
        {
            reconcile(&self.store, &round, merge_sha).await?;
        }
        self.forge.delete_branch(&project_of(&round), &round.branch()).await?;
        Ok(Performed::Done)
    }

    async fn merged_after_all(&self, round: &Round) -> Result<Option<String>, EffectError> {
        let Some(carried) = carried(&self.store, round, None).await? else { return Ok(None) };
        match self.forge.target_contains(&project_of(round), &carried).await? {
            Containment::Yes { commit } => Ok(Some(commit)),
            Containment::No | Containment::OtherContent { .. } => Ok(None),
        }
    }
}
