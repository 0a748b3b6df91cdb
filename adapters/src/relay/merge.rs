//! Arms, disarms and withdraws merge requests; each only if the database still wants it.

use shared::read::round::Round;
use shared::state::BatchStatus;
use shared::transactions::block::Block;
use shared::transactions::deliveries::{Delivery, clip};
use shared::transactions::note_progress::NoteProgress;

use super::open::trailer;
use super::{Effected, Performed, Relay, project_of};
use crate::forge::{ArmAnswer, Forge, MrState};
use crate::outbound::Outbound;

impl<F: Forge, E: Outbound> Relay<F, E> {
    /// The guard was read just before: a revived runner of a settled batch arms nothing.
    pub(super) async fn arm(&self, round: Round) -> Effected {
        let (true, Some(iid), Some(head_sha)) = (round.may_proceed(), round.mr_iid, round.head_sha.as_deref()) else {
            return Ok(Performed::Done);
        };
        let message = format!("Merge the round of partition {}\n\n{}", round.partition, trailer(round.token));
        match self.forge.arm_or_merge(&project_of(&round), iid, head_sha, &message).await? {
            ArmAnswer::Armed | ArmAnswer::Merged => {
                let _ = self.store.run(&NoteProgress { batch: round.id, step: "armed" }).await?;
                Ok(Performed::Done)
            }
            ArmAnswer::NotYet { reason } => Ok(Performed::Later { delay_s: None, why: reason }),
            // The settlement meets the same facts and decides what they mean.
            ArmAnswer::Never { reason } => {
                tracing::info!(event = "arming_refused", batch = %round.id, iid, reason);
                Ok(Performed::Done)
            }
            ArmAnswer::Closed => Ok(Performed::Done),
            ArmAnswer::ForeignHead { head_sha } => {
                let message =
                    clip(&format!("the head of {} is {head_sha}, a commit that is not ours; it is never merged by us", round.branch()));
                let held = self.store.run(&Block { batch: round.id, code: "foreign_head".into(), message }).await?;
                tracing::error!(event = "alarm", alarm = "foreign_head", batch = %round.id, head_sha, held = held.name());
                Ok(Performed::Done)
            }
        }
    }

    pub(super) async fn disarm(&self, round: Round) -> Effected {
        let (BatchStatus::Blocked, Some(iid)) = (round.status, round.mr_iid) else { return Ok(Performed::Done) };
        let facts = self.forge.disarm(&project_of(&round), iid).await?;
        match facts.state {
            MrState::Opened if facts.armed => Ok(Performed::Later { delay_s: None, why: "auto-merge is still set".into() }),
            MrState::Locked | MrState::Unknown => Ok(Performed::Later { delay_s: None, why: "a merge is in flight".into() }),
            MrState::Opened | MrState::Merged | MrState::Closed => Ok(Performed::Done),
        }
    }

    pub(super) async fn withdraw(&self, round: Round, delivery: &Delivery) -> Effected {
        let project = project_of(&round);
        let named = delivery.payload.get("mr_iid").and_then(serde_json::Value::as_u64);
        let found = self.forge.observe(&project, &round.branch(), named.or(round.mr_iid)).await?;
        let Some(facts) = found else { return Ok(Performed::Done) };
        let is_wanted = round.may_proceed() && round.mr_iid == Some(facts.iid);
        if is_wanted || facts.source_branch != round.branch() {
            return Ok(Performed::Done);
        }
        let left = if facts.state == MrState::Opened { self.forge.withdraw(&project, facts.iid).await? } else { facts };
        match left.state {
            MrState::Merged | MrState::Closed => Ok(Performed::Done),
            MrState::Opened => {
                Ok(Performed::Later { delay_s: None, why: "the forge left the merge request open; may our user close it?".into() })
            }
            MrState::Locked | MrState::Unknown => {
                Ok(Performed::Later { delay_s: None, why: "a merge is in flight, which wins over closing".into() })
            }
        }
    }
}
