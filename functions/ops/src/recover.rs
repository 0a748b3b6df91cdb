//! FAILED requests: they wait again, are closed, or count as merged. Git is asked before a verdict.

use std::time::Duration;

use adapters::forge::{Carried, Containment, Forge, ForgeError};
use adapters::outbound::Outbound;
use adapters::relay::{Relay, project_of};
use serde_json::Value;
use shared::StoreError;
use shared::decide::render::expected_blobs;
use shared::ids::OperationId;
use shared::read::{failed, ops_show, round};
use shared::state::OperationStatus;
use shared::transactions::command::CommandOutcome;
use shared::transactions::commanded::{Commanded, Subject};
use shared::transactions::recover::{Recover, RecoverOutcome, RecoverTo};

use crate::answer::Answer;
use crate::fields::Fields;

/// All questions to Git together: a hanging forge must not use up the time of the order itself.
const FORGE_LIMIT: Duration = Duration::from_secs(20);

/// Where an operator wants it to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Waiting,
    Closed,
    Merged,
}

impl Wish {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "waiting" => Some(Self::Waiting),
            "closed" => Some(Self::Closed),
            "merged" => Some(Self::Merged),
            _ => None,
        }
    }

    fn status(self) -> OperationStatus {
        match self {
            Self::Waiting => OperationStatus::Waiting,
            Self::Closed => OperationStatus::Closed,
            Self::Merged => OperationStatus::Merged,
        }
    }
}

pub async fn recover<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    let command = fields.command("recover");
    let operation = fields.needed_id("operation_id", OperationId::parse);
    let wish = wish_from(&mut fields);
    let problems = fields.end(Vec::new());
    let (Some(command), Some(operation), Some(wish), true) = (command, operation, wish, problems.is_empty()) else {
        return Ok(Answer::malformed(problems));
    };
    let Some(known) = failed::carriers(&relay.store, &operation).await? else {
        return Ok(Answer::refused(format!("there is no request {operation}"), Value::Null));
    };
    let to = match wish {
        Wish::Waiting => RecoverTo::Waiting,
        // The unit refuses it, or finds it recovered already.
        _ if known.status != OperationStatus::Failed => RecoverTo::Waiting,
        Wish::Closed | Wish::Merged => match verdict(relay, &operation, &known, wish).await? {
            Ok(to) => to,
            Err(reason) => return Ok(Answer::refused(reason, snapshot(relay, &operation).await?)),
        },
    };
    let unit = Recover { operation: operation.clone(), version: known.version, to, actor: command.actor.clone() };
    let outcome = relay.store.run(&Commanded { unit, subject: Subject::Operation(operation.clone()), command }).await?;
    let now = match &outcome {
        CommandOutcome::Refused(_) => snapshot(relay, &operation).await?,
        _ => Value::Null,
    };
    Ok(Answer::from_outcome(outcome, |refusal| explain(refusal, &operation, wish, now)))
}

fn wish_from(fields: &mut Fields) -> Option<Wish> {
    if !fields.has("to") {
        fields.wrong("to is missing; give waiting, closed or merged");
    }
    let text = fields.text("to")?;
    let wish = Wish::parse(&text);
    if wish.is_none() {
        let shown: String = text.chars().take(80).collect();
        fields.wrong(format!("to {shown:?} is not waiting, closed or merged"));
    }
    wish
}

async fn snapshot<F: Forge, E: Outbound>(relay: &Relay<F, E>, operation: &OperationId) -> Result<Value, StoreError> {
    Ok(ops_show::operation_row(&relay.store, operation).await?.unwrap_or_default())
}

/// What Git allows; `Err` is the sentence that refuses it.
async fn verdict<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    operation: &OperationId,
    known: &failed::Carriers,
    wish: Wish,
) -> Result<Result<RecoverTo, String>, StoreError> {
    let asking = find_on_target(relay, operation, known);
    let found = match tokio::time::timeout(FORGE_LIMIT, asking).await {
        Ok(found) => found?,
        Err(_) => Err(ForgeError::Unreachable { detail: format!("no answer within {} s", FORGE_LIMIT.as_secs()) }),
    };
    Ok(match (found, wish) {
        (Ok(Containment::Yes { commit }), Wish::Merged) => Ok(RecoverTo::Merged { commit }),
        (Ok(Containment::Yes { commit }), _) => {
            Err(format!("request {operation} is on the target branch by commit {commit}, so it cannot be closed; recover it to merged"))
        }
        (Ok(Containment::No), Wish::Merged) => Err(format!(
            "no commit of request {operation} is on the target branch, so it cannot count as merged; recover it to waiting or to closed"
        )),
        (Ok(Containment::No), _) => Ok(RecoverTo::Closed),
        (Ok(Containment::OtherContent { commit, paths }), _) => Err(format!(
            "commit {commit} on the target branch carries the batch of request {operation} with another content of {}; \
             put these files right by hand, then recover it to waiting",
            paths.join(", ")
        )),
        (Err(error), _) => {
            Err(format!("whether request {operation} is on the target branch is not known, so nothing was written: {error}"))
        }
    })
}

/// Asks for each batch that carried it. Only its own files are compared: those of its peers may be purged by now.
async fn find_on_target<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    operation: &OperationId,
    known: &failed::Carriers,
) -> Result<Result<Containment, ForgeError>, StoreError> {
    let content = failed::content(&relay.store, operation).await?;
    let blobs = expected_blobs(&content);
    let mut found = Containment::No;
    for batch in &known.batches {
        let Some(round) = round::round(&relay.store, *batch).await? else {
            return Err(StoreError::corrupt(format!("the batch {batch} of request {operation} does not exist")));
        };
        // Without a start no commit was ever made.
        let Some(start_sha) = round.start_sha.clone() else { continue };
        let commits = round.head_sha.clone().into_iter().collect();
        let carried = Carried { token_hex: round.token.hex(), start_sha, commits, blobs: blobs.clone() };
        match relay.forge.target_contains(&project_of(&round), &carried).await {
            Ok(Containment::No) => {}
            Ok(yes @ Containment::Yes { .. }) => return Ok(Ok(yes)),
            Ok(other @ Containment::OtherContent { .. }) => found = other,
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(found))
}

fn explain(refusal: RecoverOutcome, operation: &OperationId, wish: Wish, now: Value) -> Answer {
    match refusal {
        RecoverOutcome::NotFailed { status } if status == wish.status() => Answer::already(now),
        RecoverOutcome::NotFailed { status } => Answer::refused(
            format!("request {operation} is {status}, and only a FAILED one is recovered; why tells what it waits for"),
            now,
        ),
        RecoverOutcome::WithdrawalWanted => Answer::refused(
            format!(
                "request {operation} was taken back by its requester, so it does not wait again; the sweep closes it, or recover it to closed"
            ),
            now,
        ),
        RecoverOutcome::PartitionClosed { partition } => Answer::refused(
            format!(
                "the partition {partition} is closed; open it with set_partition and \"closed\": false, or recover the request to closed"
            ),
            now,
        ),
        RecoverOutcome::Unknown => Answer::refused(format!("there is no request {operation}"), Value::Null),
        RecoverOutcome::Recovered => Answer::already(now),
        RecoverOutcome::Preempted => {
            Answer::refused(format!("request {operation} changed while this was decided; nothing was written, try again"), now)
        }
    }
}
