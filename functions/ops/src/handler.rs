//! Carries out what an operator orders, and shows what an operator asks for.
//!
//! Every action that writes is guarded, signed by `actor` and `reason` in the audit, and takes `dry_run`.
//! A refusal is an answer; an error means that the database could not be asked, or contradicts itself.

mod answer;
mod audit;
mod batches;
mod doctor;
mod fields;
mod looks;
mod operations;
mod partitions;
mod plan;
mod recover;
mod retention;
mod targets;
mod why;

use std::time::Instant;

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde_json::Value;
use shared::StoreError;

use answer::Answer;
use fields::Fields;

/// Everything that can be ordered or asked for.
const ACTIONS: [&str; 18] = [
    "status",
    "show",
    "why",
    "plan",
    "doctor",
    "list_partitions",
    "list_targets",
    "set_partition",
    "set_target",
    "pause",
    "resume",
    "abort",
    "requeue",
    "unblock",
    "withdraw",
    "recover",
    "audit",
    "purge",
];

/// Carries out one event: `{"action", "actor", "reason", "dry_run"?, …}`.
///
/// Answers `{"action", "outcome": "done"|"already"|"refused"|"dry_run", "before", "after", "audit_id"}`; a
/// refusal adds `reason`, a malformed event `problems`; what only reads answers what it found.
///
/// # Errors
/// The database could not be asked (the same event helps later), or contradicts itself (it does not).
pub async fn handle<F: Forge, E: Outbound>(relay: &Relay<F, E>, event: Value, stop_at: Instant) -> Result<Value, lambda_runtime::Error> {
    let Value::Object(mut event) = event else {
        return Ok(Answer::malformed(vec![format!("the event is not a JSON object; {}", known())]).into_value(None));
    };
    let action = match event.remove("action") {
        Some(Value::String(action)) => action,
        Some(other) => return Ok(unknown(&shortened(&other.to_string())).into_value(None)),
        None => return Ok(Answer::malformed(vec![format!("action is missing; {}", known())]).into_value(None)),
    };
    // Boxed: as one value, the states of all actions nest too deeply for the compiler to lay out.
    let answer = Box::pin(act(relay, &action, Fields::new(event), stop_at)).await?;
    tracing::info!(event = "ops", action = shortened(&action), outcome = answer.outcome());
    Ok(answer.into_value(Some(&shortened(&action))))
}

async fn act<F: Forge, E: Outbound>(relay: &Relay<F, E>, action: &str, fields: Fields, stop_at: Instant) -> Result<Answer, StoreError> {
    match action {
        "status" => looks::status(relay, fields).await,
        "show" => looks::show(relay, fields).await,
        "why" => why::why(relay, fields).await,
        "plan" => plan::show(relay, fields).await,
        "doctor" => doctor::examine(relay, fields).await,
        "list_partitions" => partitions::list(relay, fields).await,
        "list_targets" => targets::list(relay, fields).await,
        "set_partition" => partitions::set(relay, fields).await,
        "set_target" => targets::set(relay, fields).await,
        "pause" => partitions::pause(relay, fields).await,
        "resume" => partitions::resume(relay, fields).await,
        "abort" => batches::end(relay, fields, batches::ABORT, stop_at).await,
        "requeue" => batches::end(relay, fields, batches::REQUEUE, stop_at).await,
        "unblock" => batches::unblock(relay, fields, stop_at).await,
        "withdraw" => operations::withdraw(relay, fields).await,
        "recover" => recover::recover(relay, fields).await,
        "audit" => audit::audit(relay, fields).await,
        "purge" => retention::purge(relay, fields, stop_at).await,
        other => Ok(unknown(&shortened(other))),
    }
}

fn unknown(action: &str) -> Answer {
    Answer::malformed(vec![format!("there is no action {action}; {}", known())])
}

fn known() -> String {
    format!("the actions are {}", ACTIONS.join(", "))
}

/// What an answer repeats of an event.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
