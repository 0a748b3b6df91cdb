//! why: who or what holds a request or a batch, what must happen next, and since when it has been so.

mod batch;
mod request;

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde::Serialize;
use serde_json::{Value, json};
use shared::StoreError;
use shared::ids::OperationId;
use shared::read::why::PendingEffect;

use crate::answer::Answer;
use crate::fields::Fields;

/// The answer to why something stands where it does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Why {
    pub status: String,
    /// Stable name of the reason.
    pub code: &'static str,
    /// Who or what must move: a batch, the forge, an operator, the next round, the sweep; `null` where it has ended.
    pub holder: Value,
    /// RFC 3339, in UTC.
    pub since: Option<String>,
    pub reason: String,
    pub next: String,
    /// What is still to be done on the forge, with its attempts and its last error.
    pub pending: Value,
}

impl Why {
    fn of(
        status: &str,
        code: &'static str,
        holder: Value,
        since: Option<&str>,
        reason: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        let since = since.map(str::to_owned);
        Self { status: status.to_owned(), code, holder, since, reason: reason.into(), next: next.into(), pending: json!([]) }
    }

    fn ended(status: &str, since: Option<&str>, reason: impl Into<String>) -> Self {
        Self::of(status, "ended", Value::Null, since, reason, "nothing: it has ended")
    }

    fn with_pending(mut self, pending: &[PendingEffect]) -> Self {
        self.pending = json!(pending);
        self
    }
}

/// `code: message`, as far as they are known.
fn told(code: Option<&str>, message: Option<&str>) -> String {
    match (code, message) {
        (Some(code), Some(message)) if message.starts_with(code) => message.to_owned(),
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => "no reason was recorded".to_owned(),
    }
}

pub async fn why<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    fields.skip_signature();
    if fields.has("batch_id") == fields.has("operation_id") {
        fields.wrong("why needs either batch_id or operation_id");
    }
    let batch = fields.batch();
    let operation = fields.id("operation_id", OperationId::parse);
    let problems = fields.end(Vec::new());
    if !problems.is_empty() {
        return Ok(Answer::malformed(problems));
    }
    let (found, unknown) = match (batch, operation) {
        (Some(batch), _) => (batch::why(&relay.store, batch).await?, format!("there is no batch {batch}")),
        (None, Some(operation)) => (request::why(&relay.store, &operation).await?, format!("there is no request {operation}")),
        (None, None) => return Ok(Answer::malformed(vec!["why needs either batch_id or operation_id".into()])),
    };
    Ok(found.map_or_else(|| Answer::refused(unknown, Value::Null), |why| Answer::read("why", json!(why))))
}
