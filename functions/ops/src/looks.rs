//! What operators look at: all at once, one batch, one request.

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde_json::{Value, json};
use shared::StoreError;
use shared::ids::OperationId;
use shared::read::{ops_show, status};

use crate::answer::Answer;
use crate::fields::Fields;

pub async fn status<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    fields.skip_signature();
    let problems = fields.end(Vec::new());
    if !problems.is_empty() {
        return Ok(Answer::malformed(problems));
    }
    Ok(Answer::read("status", json!(status::status(&relay.store).await?)))
}

pub async fn show<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    fields.skip_signature();
    let names_both = fields.has("batch_id") && fields.has("operation_id");
    if names_both || !fields.has("batch_id") && !fields.has("operation_id") {
        fields.wrong("show needs either batch_id or operation_id");
    }
    let batch = fields.batch();
    let operation = fields.id("operation_id", OperationId::parse);
    let problems = fields.end(Vec::new());
    if !problems.is_empty() {
        return Ok(Answer::malformed(problems));
    }
    let (name, found, unknown) = match (batch, operation) {
        (Some(batch), None) => ("batch", ops_show::batch(&relay.store, batch).await?, format!("there is no batch {batch}")),
        (None, Some(operation)) => {
            ("operation", ops_show::operation(&relay.store, &operation).await?, format!("there is no request {operation}"))
        }
        _ => return Ok(Answer::malformed(vec!["show needs either batch_id or operation_id".into()])),
    };
    Ok(found.map_or_else(|| Answer::refused(unknown, Value::Null), |found| Answer::read(name, found)))
}
