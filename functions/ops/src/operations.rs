//! Requests: taken back on an operator's word.

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde_json::Value;
use shared::StoreError;
use shared::ids::OperationId;
use shared::read::ops_show;
use shared::state::OperationStatus;
use shared::transactions::command::CommandOutcome;
use shared::transactions::commanded::{Commanded, Subject};
use shared::transactions::withdraw::{WaitingEnd, Withdraw, WithdrawOutcome};

use crate::answer::Answer;
use crate::fields::Fields;

pub async fn withdraw<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    let command = fields.command("withdraw");
    let operation = fields.needed_id("operation_id", OperationId::parse);
    let problems = fields.end(Vec::new());
    let (Some(command), Some(operation), true) = (command, operation, problems.is_empty()) else {
        return Ok(Answer::malformed(problems));
    };
    let unit = Withdraw { operation: operation.clone(), actor: command.actor.clone(), ending: WaitingEnd::Withdrawn };
    let outcome = relay.store.run(&Commanded { unit, subject: Subject::Operation(operation.clone()), command }).await?;
    let now = match &outcome {
        CommandOutcome::Refused(_) => ops_show::operation_row(&relay.store, &operation).await?.unwrap_or_default(),
        _ => Value::Null,
    };
    Ok(Answer::from_outcome(outcome, |refusal| explain(refusal, &operation, now)))
}

fn explain(refusal: WithdrawOutcome, operation: &OperationId, now: Value) -> Answer {
    match refusal {
        WithdrawOutcome::Withdrawn
        | WithdrawOutcome::Noted { .. }
        | WithdrawOutcome::Ended { status: OperationStatus::Withdrawn | OperationStatus::Closed } => Answer::already(now),
        WithdrawOutcome::Ended { status } => {
            Answer::refused(format!("request {operation} is {status} and has ended; a merged grant is taken back by a revoke"), now)
        }
        WithdrawOutcome::OperatorsOnly => Answer::refused(
            format!(
                "request {operation} is a FAILED revoke: the access it was to take away still stands, so closing it is a \
                 recovery and not a withdrawal; put right what made it fail, as show tells, and recover it"
            ),
            now,
        ),
        WithdrawOutcome::Unknown => Answer::refused(format!("there is no request {operation}"), Value::Null),
        WithdrawOutcome::Preempted => {
            Answer::refused(format!("request {operation} changed while this was decided; nothing was written, try again"), now)
        }
    }
}
