//! A batch whose end forge and Git cannot agree on, or cannot be asked for: ended on the operator's word.
//!
//! The word counts only where there is nothing better. What can still be withdrawn is withdrawn first, in the ordinary
//! way, and what Git finds on the target branch is merged, whatever anybody says.

use std::time::{Duration, Instant};

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use adapters::settlement::{Look, PATIENCE, look};
use shared::StoreError;
use shared::decide::settlement::{OnTarget, Theirs};
use shared::ids::BatchId;
use shared::read::round;
use shared::transactions::command::Command;
use shared::transactions::fail_as_ordered::FailAsOrdered;

use super::{Ending, NOT_MERGED, explain, run, snapshot, unfinished};
use crate::answer::Answer;

/// All questions to the forge together. One that does not answer is the reason to be here.
const FORGE_LIMIT: Duration = Duration::from_secs(20);

/// `None`: the batch is not there, or has ended; the ordinary order says so.
pub(super) async fn end<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    batch: BatchId,
    command: &Command,
    ending: Ending,
    stop_at: Instant,
) -> Result<Option<Answer>, StoreError> {
    let Some(round) = round::round(&relay.store, batch).await?.filter(|round| round.status.is_active()) else { return Ok(None) };
    let seen = match tokio::time::timeout(FORGE_LIMIT, look(relay, &round)).await {
        Ok(seen) => seen?,
        Err(_) => Look { theirs: Theirs::Unreachable, on_target: OnTarget::Unknown, commit: None, url: None },
    };
    if let Some(reason) = refusal(batch, ending, &seen) {
        return Ok(Some(Answer::refused(reason, snapshot(relay, batch).await?)));
    }
    let unit = FailAsOrdered {
        batch,
        version: round.version,
        by: command.audit_id(),
        cause: ending.cause,
        code: ending.code.to_owned(),
        message: ending.message(command),
    };
    let (outcome, state) = run(relay, unit, batch, command.clone()).await?;
    let answer = Answer::from_outcome(outcome, |refusal| explain(&refusal, batch, &state, |now| now.code() == Some(ending.code)));
    if !answer.is("done") {
        return Ok(Some(answer));
    }
    Ok(Some(match relay.drive_batch(batch, PATIENCE, stop_at).await {
        Ok(_) => answer,
        Err(error) => answer.with("settlement", unfinished(&error)),
    }))
}

/// Why the operator's word does not count here.
fn refusal(batch: BatchId, ending: Ending, seen: &Look) -> Option<String> {
    let action = ending.action;
    match (&seen.theirs, seen.on_target) {
        (_, OnTarget::Yes) => {
            let commit = seen.commit.as_deref().unwrap_or("a commit of ours");
            Some(format!("batch {batch} is on the target branch by commit {commit}: it is merged, and the sweep settles it so"))
        }
        (Theirs::Opened { .. }, _) => {
            let url = seen.url.as_deref().unwrap_or_default();
            Some(format!(
                "the merge request of batch {batch} is open ({url}) and can still be withdrawn; {action} it without {NOT_MERGED}, or close \
                 the merge request by hand where Muster's user may not"
            ))
        }
        (Theirs::Locked, _) => Some(format!(
            "a merge of batch {batch} is in flight, and nobody can know yet how it ends; try again when the forge has ended it"
        )),
        (Theirs::None | Theirs::Merged | Theirs::ClosedByUs | Theirs::ClosedByPerson | Theirs::Unreachable, _) => None,
    }
}
