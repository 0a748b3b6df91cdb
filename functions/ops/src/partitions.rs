//! Partitions: made, changed, paused, resumed, listed.

use std::time::Duration;

use adapters::forge::{Forge, ForgeError, ProjectRef};
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde_json::{Value, json};
use shared::StoreError;
use shared::ids::PartitionKey;
use shared::moment::Moment;
use shared::read::partitions::{partition, partitions};
use shared::transactions::pause::{Pause, Rounds};
use shared::transactions::set_partition::limits::{Limits, LimitsWish};
use shared::transactions::set_partition::settings::{PartitionWish, Settings};
use shared::transactions::set_partition::{PartitionRefusal, SetPartition};

use crate::answer::Answer;
use crate::fields::Fields;

/// All calls of one preflight together: a hanging forge must not use up the time of the order itself.
const PREFLIGHT_LIMIT: Duration = Duration::from_secs(20);

pub async fn set<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    let command = fields.command("set_partition");
    let key = fields.needed_id("partition", PartitionKey::parse);
    let mut wish = wish_from(&mut fields);
    // What is left out stays as it is, so what is given can only be checked beside it.
    let current = match &key {
        Some(key) => partition(&relay.store, key).await?,
        None => None,
    };
    let settings = wish.over(current.as_ref().map(|now| &now.settings));
    let problems = fields.end(settings.as_ref().err().cloned().unwrap_or_default());
    let (Some(command), Some(key), Ok(settings), true) = (command, key, settings, problems.is_empty()) else {
        return Ok(Answer::malformed(problems));
    };
    let mut warnings = Vec::new();
    if !settings.closed {
        match preflight(&relay.forge, &settings).await {
            Preflighted::Known { project_id, problems } => {
                wish.project_id = Some(project_id);
                warnings = problems;
            }
            Preflighted::Unknown { warning } => warnings.push(warning),
            Preflighted::Refused { reason } => return Ok(Answer::refused(reason, json!(current.map(|now| now.to_json())))),
        }
    }
    let outcome = relay.store.run(&SetPartition { partition: key, wish, command }).await?;
    let now = json!(current.map(|now| now.to_json()));
    let answer = Answer::from_outcome(outcome, |refusal| match refusal {
        PartitionRefusal::Invalid(problems) => Answer::malformed(problems),
        PartitionRefusal::BranchTaken { .. } | PartitionRefusal::BatchActive { .. } | PartitionRefusal::StillInUse(_) => {
            Answer::refused(refusal, now)
        }
    });
    Ok(answer.with("warnings", json!(warnings)))
}

fn wish_from(fields: &mut Fields) -> PartitionWish {
    let mut limits = LimitsWish::default();
    for name in Limits::NAMES {
        if let Some(value) = fields.number(name) {
            limits.set(name, value);
        }
    }
    PartitionWish {
        project: fields.text("project"),
        target_branch: fields.text("target_branch"),
        path_template: fields.text("path_template"),
        allowed_prefixes: fields.texts("allowed_prefixes"),
        limits,
        project_id: None,
        closed: fields.flag("closed"),
    }
}

/// What the forge says about the project.
enum Preflighted {
    Known {
        project_id: u64,
        problems: Vec<String>,
    },
    /// It could not be asked: the partition is stored without its number.
    Unknown {
        warning: String,
    },
    Refused {
        reason: String,
    },
}

async fn preflight<F: Forge>(forge: &F, settings: &Settings) -> Preflighted {
    // Asked by its path, so that the number is that of the project which is named.
    let project = ProjectRef { path: settings.project.clone(), id: None, target_branch: settings.target_branch.clone() };
    let Ok(answer) = tokio::time::timeout(PREFLIGHT_LIMIT, forge.preflight(&project)).await else {
        return Preflighted::unchecked(&format!("the forge did not answer within {} s", PREFLIGHT_LIMIT.as_secs()));
    };
    match answer {
        Ok(found) if !found.refusals.is_empty() => Preflighted::Refused { reason: found.refusals.join(" ") },
        Ok(found) => Preflighted::Known { project_id: found.project_id, problems: found.problems },
        Err(error @ ForgeError::NotFound { .. }) => {
            Preflighted::Refused { reason: format!("{error}, and that our token's user is a member of the project") }
        }
        Err(error) => Preflighted::unchecked(&error.to_string()),
    }
}

impl Preflighted {
    fn unchecked(why: &str) -> Self {
        Self::Unknown {
            warning: format!(
                "the project could not be checked: {why}. The partition does not depend on it, \
                 but whether anything can merge is not known; give set_partition again later"
            ),
        }
    }
}

pub async fn pause<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    let until = fields.text("until").and_then(|text| Moment::parse(&text).map_err(|why| fields.wrong(format!("until {why}"))).ok());
    set_rounds(relay, fields, "pause", Rounds::Paused { until }).await
}

pub async fn resume<F: Forge, E: Outbound>(relay: &Relay<F, E>, fields: Fields) -> Result<Answer, StoreError> {
    set_rounds(relay, fields, "resume", Rounds::Resumed).await
}

async fn set_rounds<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    mut fields: Fields,
    action: &'static str,
    rounds: Rounds,
) -> Result<Answer, StoreError> {
    let command = fields.command(action);
    let key = fields.needed_id("partition", PartitionKey::parse);
    let problems = fields.end(Vec::new());
    let (Some(command), Some(partition), true) = (command, key, problems.is_empty()) else {
        return Ok(Answer::malformed(problems));
    };
    let outcome = relay.store.run(&Pause { partition, rounds, command }).await?;
    Ok(Answer::from_outcome(outcome, |refusal| Answer::refused(refusal, Value::Null)))
}

pub async fn list<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    fields.skip_signature();
    let problems = fields.end(Vec::new());
    if !problems.is_empty() {
        return Ok(Answer::malformed(problems));
    }
    let found: Vec<Value> = partitions(&relay.store).await?.iter().map(|one| one.to_json()).collect();
    Ok(Answer::read("partitions", found.into()))
}
