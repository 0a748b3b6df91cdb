//! What an operator is told.

use serde_json::{Map, Value, json};
use shared::transactions::command::{Change, CommandOutcome};

/// The answer to one event, but for the name of its action.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer(Map<String, Value>);

const TRY_AGAIN: &str = "the state changed again and again while this was decided; nothing was written, look at it and try again";

impl Answer {
    fn of(outcome: &str, change: Change, audit_id: Option<String>) -> Self {
        let mut answer = Map::new();
        answer.insert("outcome".into(), outcome.into());
        answer.insert("before".into(), change.before);
        answer.insert("after".into(), change.after);
        answer.insert("audit_id".into(), json!(audit_id));
        Self(answer)
    }

    /// All is as ordered already.
    pub fn already(state: Value) -> Self {
        Self::of("already", Change { before: state.clone(), after: state }, None)
    }

    /// Nothing was written; `reason` says what holds it and what to do.
    pub fn refused(reason: impl std::fmt::Display, state: Value) -> Self {
        Self::of("refused", Change { before: state.clone(), after: state }, None).with("reason", reason.to_string().into())
    }

    /// The event was not understood: everything that is wrong with it.
    pub fn malformed(problems: Vec<String>) -> Self {
        let reason = format!("the event was not carried out; put right what is wrong with it: {}", problems.join("; "));
        Self::refused(reason, Value::Null).with("problems", json!(problems))
    }

    /// The answer of an action that only reads.
    pub fn read(name: &str, found: Value) -> Self {
        Self(Map::new()).with("outcome", "done".into()).with(name, found)
    }

    /// The outcome of a command; `explain` answers where it was refused.
    pub fn from_outcome<R>(outcome: CommandOutcome<R>, explain: impl FnOnce(R) -> Self) -> Self {
        match outcome {
            CommandOutcome::Done { change, audit_id } => Self::of("done", change, Some(audit_id)),
            CommandOutcome::WouldDo { change } => Self::of("dry_run", change, None),
            CommandOutcome::Already { state } => Self::already(state),
            CommandOutcome::Refused(refusal) => explain(refusal),
            CommandOutcome::Preempted => Self::refused(TRY_AGAIN, Value::Null),
        }
    }

    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.0.insert(name.into(), value);
        self
    }

    pub fn is(&self, outcome: &str) -> bool {
        self.outcome() == outcome
    }

    pub fn outcome(&self) -> &str {
        self.0.get("outcome").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn into_value(self, action: Option<&str>) -> Value {
        let mut answer = self.0;
        answer.insert("action".into(), json!(action));
        Value::Object(answer)
    }
}
