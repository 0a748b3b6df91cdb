//! Batches: aborted, requeued, let run on.

mod confirmed;

use std::time::Instant;

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use adapters::settlement::{PATIENCE, settle};
use serde_json::{Value, json};
use shared::ids::BatchId;
use shared::read::ops_show;
use shared::state::{BatchStatus, FailCause};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::begin_fail::BeginFail;
use shared::transactions::command::{Command, CommandOutcome};
use shared::transactions::commanded::{Commanded, Subject};
use shared::transactions::unblock::Unblock;
use shared::{Guarded, StoreError};

use crate::answer::Answer;
use crate::fields::Fields;

/// How an operator ends a batch, and what becomes of its members.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    action: &'static str,
    cause: FailCause,
    code: &'static str,
}

/// Its members are rejected.
pub const ABORT: Ending = Ending { action: "abort", cause: FailCause::Rejected, code: "aborted" };
/// Its members wait again.
pub const REQUEUE: Ending = Ending { action: "requeue", cause: FailCause::Infrastructure, code: "requeued" };

impl Ending {
    fn message(self, command: &Command) -> String {
        format!("{} by {}: {}", self.code, command.actor, command.reason)
    }
}

/// The operator has looked, and answers for it that the batch's change is not merged: field of `abort` and `requeue`
/// for a batch of which forge and Git tell different things, or nothing.
const NOT_MERGED: &str = "confirm_not_merged";

pub async fn end<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    mut fields: Fields,
    ending: Ending,
    stop_at: Instant,
) -> Result<Answer, StoreError> {
    let is_confirmed = fields.flag(NOT_MERGED).unwrap_or(false);
    let (command, batch) = match batch_command(fields, ending.action) {
        Ok(understood) => understood,
        Err(problems) => return Ok(Answer::malformed(problems)),
    };
    if is_confirmed && let Some(answer) = confirmed::end(relay, batch, &command, ending, stop_at).await? {
        return Ok(answer);
    }
    let unit = BeginFail {
        batch,
        // The audit record that names actor and reason; a principal may be longer than a key has room for.
        by: command.audit_id(),
        cause: ending.cause,
        code: ending.code.to_owned(),
        message: ending.message(&command),
    };
    let (outcome, state) = run(relay, unit, batch, command).await?;
    let answer = Answer::from_outcome(outcome, |refusal| explain(&refusal, batch, &state, |now| now.code() == Some(ending.code)));
    if !answer.is("done") {
        return Ok(answer);
    }
    // The order stands, whatever happens now: what is not finished here the sweep finishes.
    let finishing = async {
        let _ = relay.drive_batch(batch, PATIENCE, stop_at).await?;
        let progress = settle(relay, batch, PATIENCE, stop_at).await?;
        Ok::<_, StoreError>((progress, snapshot(relay, batch).await?))
    };
    Ok(match finishing.await {
        Ok((progress, after)) => answer.with("after", after).with("settlement", json!(progress)),
        Err(error) => answer.with("settlement", unfinished(&error)),
    })
}

fn unfinished(error: &StoreError) -> Value {
    json!(format!("left to the sweep, for it could not be finished now: {error}"))
}

pub async fn unblock<F: Forge, E: Outbound>(relay: &Relay<F, E>, fields: Fields, stop_at: Instant) -> Result<Answer, StoreError> {
    let (command, batch) = match batch_command(fields, "unblock") {
        Ok(understood) => understood,
        Err(problems) => return Ok(Answer::malformed(problems)),
    };
    let (outcome, state) = run(relay, Unblock { batch }, batch, command).await?;
    let is_running = |now: &State<'_>| now.status() == Some(BatchStatus::Running.name()) && now.fail_code().is_none();
    let answer = Answer::from_outcome(outcome, |refusal| explain(&refusal, batch, &state, is_running));
    if !answer.is("done") {
        return Ok(answer);
    }
    Ok(match relay.drive_batch(batch, PATIENCE, stop_at).await {
        Ok(_) => answer,
        Err(error) => answer.with("settlement", unfinished(&error)),
    })
}

fn batch_command(mut fields: Fields, action: &'static str) -> Result<(Command, BatchId), Vec<String>> {
    let command = fields.command(action);
    let batch = fields.needed_batch();
    let problems = fields.end(Vec::new());
    match (command, batch) {
        (Some(command), Some(batch)) if problems.is_empty() => Ok((command, batch)),
        _ => Err(problems),
    }
}

/// Runs the unit; where it is refused, tells the state that refused it.
async fn run<F: Forge, E: Outbound, G: Guarded<Outcome = SettleOutcome>>(
    relay: &Relay<F, E>,
    unit: G,
    batch: BatchId,
    command: Command,
) -> Result<(CommandOutcome<SettleOutcome>, Value), StoreError> {
    let outcome = relay.store.run(&Commanded { unit, subject: Subject::Batch(batch), command }).await?;
    let state = match &outcome {
        CommandOutcome::Refused(_) => snapshot(relay, batch).await?,
        _ => Value::Null,
    };
    Ok((outcome, state))
}

async fn snapshot<F: Forge, E: Outbound>(relay: &Relay<F, E>, batch: BatchId) -> Result<Value, StoreError> {
    Ok(ops_show::batch_row(&relay.store, batch).await?.unwrap_or_default())
}

/// A batch's row as it was shown.
struct State<'v>(&'v Value);

impl<'v> State<'v> {
    fn text(&self, name: &str) -> Option<&'v str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn status(&self) -> Option<&'v str> {
        self.text("status")
    }

    fn fail_code(&self) -> Option<&'v str> {
        self.text("fail_code")
    }

    /// Why it fails, or has failed.
    fn code(&self) -> Option<&'v str> {
        self.fail_code().or_else(|| self.text("code"))
    }
}

fn explain(refusal: &SettleOutcome, batch: BatchId, state: &Value, is_so_already: impl Fn(&State<'_>) -> bool) -> Answer {
    match refusal {
        SettleOutcome::UnknownBatch => Answer::refused(format!("there is no batch {batch}; status names those that run"), Value::Null),
        SettleOutcome::Settled | SettleOutcome::Preempted { .. } => {
            let now = State(state);
            if is_so_already(&now) {
                return Answer::already(state.clone());
            }
            let status = now.status().unwrap_or("gone");
            let reason = match now.fail_code() {
                Some(code) if status == BatchStatus::Running.name() || status == BatchStatus::Blocked.name() => {
                    format!(
                        "batch {batch} is failing already (code {code}); wait until it has failed, the sweep sees to it; where forge and Git \
                         keep it from that (why tells), look yourself, then abort or requeue it with \"{NOT_MERGED}\": true"
                    )
                }
                _ if status == BatchStatus::Running.name() => {
                    format!("batch {batch} is RUNNING and nothing holds it; abort or requeue it to end it")
                }
                _ => {
                    format!("batch {batch} is {status}, and this can only be done to an active one; show tells what became of its members")
                }
            };
            Answer::refused(reason, state.clone())
        }
    }
}
