//! Targets: made, changed, listed.

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde_json::{Value, json};
use shared::StoreError;
use shared::ids::{PartitionKey, TargetKey};
use shared::read::targets::{PAGE_MAX, target, targets};
use shared::transactions::command::CommandOutcome;
use shared::transactions::set_target::SetTarget;

use crate::answer::Answer;
use crate::fields::Fields;

/// What `capacity` and `used` may grow to: far above any real count, far below what a column holds.
const CAPACITY_MAX: u64 = 1_000_000_000;

pub async fn set<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    let command = fields.command("set_target");
    let key = fields.needed_id("target_key", TargetKey::parse);
    let partition = fields.id("partition", PartitionKey::parse);
    let capacity = fields.number_or_null("capacity");
    if capacity.flatten().is_some_and(|seats| seats > CAPACITY_MAX) {
        fields.wrong(format!("capacity is more than {CAPACITY_MAX}; give null, so that seats are not counted"));
    }
    let closed = fields.flag("closed");
    let problems = fields.end(Vec::new());
    let (Some(command), Some(key), true) = (command, key, problems.is_empty()) else {
        return Ok(Answer::malformed(problems));
    };
    let outcome = relay.store.run(&SetTarget { target: key.clone(), partition, capacity, closed, command }).await?;
    let now = match &outcome {
        CommandOutcome::Refused(_) => target(&relay.store, &key).await?,
        _ => None,
    };
    let now = json!(now.map(|now| now.to_json()));
    Ok(Answer::from_outcome(outcome, |refusal| Answer::refused(refusal, now)))
}

pub async fn list<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    fields.skip_signature();
    let partition = fields.id("partition", PartitionKey::parse);
    let after = fields.id("after", TargetKey::parse);
    let limit = fields.number("limit").unwrap_or(100);
    if !(1..=u64::from(PAGE_MAX)).contains(&limit) {
        fields.wrong(format!("limit {limit} is not one of 1 to {PAGE_MAX}"));
    }
    let problems = fields.end(Vec::new());
    if !problems.is_empty() {
        return Ok(Answer::malformed(problems));
    }
    let found = targets(&relay.store, partition.as_ref(), after.as_ref(), limit as u32).await?;
    let next = found.last().filter(|_| found.len() as u64 == limit).map(|last| last.key.clone());
    let shown: Vec<Value> = found.iter().map(|one| one.to_json()).collect();
    Ok(Answer::read("targets", shown.into()).with("next_after", json!(next)))
}
