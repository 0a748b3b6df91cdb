//! doctor: does everything that Muster stands on hold, on the live database, queue and forge? Writes nothing.

use std::time::Duration;

use adapters::forge::{Forge, ProjectRef};
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde_json::{Value, json};
use shared::StoreError;
use shared::read::doctor::{self, Check};
use shared::read::partitions::{Partition, partitions};

use crate::answer::Answer;
use crate::fields::Fields;

/// One partition's preflight; a hanging forge must not hide the other answers.
const PREFLIGHT_LIMIT: Duration = Duration::from_secs(15);
const QUEUE_LIMIT: Duration = Duration::from_secs(10);

pub async fn examine<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    fields.skip_signature();
    let problems = fields.end(Vec::new());
    if !problems.is_empty() {
        return Ok(Answer::malformed(problems));
    }
    let mut checks = doctor::examine(&relay.store).await?;
    checks.extend(queue(relay).await);
    // Without the table itself, that is what is told.
    if checks.iter().any(|check| check.name == "schema.columns" && check.ok) {
        for partition in partitions(&relay.store).await?.iter().filter(|one| one.closed_at.is_none()) {
            checks.extend(preflight(&relay.forge, partition).await);
        }
    }
    let wrong: Vec<&Check> = checks.iter().filter(|check| !check.ok).collect();
    for check in &wrong {
        tracing::error!(event = "alarm", alarm = "precondition_broken", check = check.name, problem = check.problem);
    }
    let found = json!({ "healthy": wrong.is_empty(), "wrong": wrong.len(), "checks": sorted(&checks) });
    Ok(Answer::read("doctor", found))
}

/// What is wrong first.
fn sorted(checks: &[Check]) -> Vec<Value> {
    let mut shown: Vec<&Check> = checks.iter().collect();
    shown.sort_by_key(|check| check.ok);
    shown.into_iter().map(|check| json!(check)).collect()
}

async fn queue<F: Forge, E: Outbound>(relay: &Relay<F, E>) -> Vec<Check> {
    let problems = match tokio::time::timeout(QUEUE_LIMIT, relay.outbound.problems()).await {
        Ok(problems) => problems,
        Err(_) => vec![format!("the events queue did not answer within {} s", QUEUE_LIMIT.as_secs())],
    };
    Check::all(
        "queue.events",
        problems,
        "look at EVENTS_QUEUE_URL, the queue's attributes, and the function's right to sqs:GetQueueAttributes",
    )
}

async fn preflight<F: Forge>(forge: &F, partition: &Partition) -> Vec<Check> {
    let name = format!("forge.{}", partition.key);
    let settings = &partition.settings;
    // By its path, so that a project that was renamed or replaced is seen.
    let project = ProjectRef { path: settings.project.clone(), id: None, target_branch: settings.target_branch.clone() };
    let todo = "put it right on the forge, or give set_partition the right project and branch";
    match tokio::time::timeout(PREFLIGHT_LIMIT, forge.preflight(&project)).await {
        Err(_) => vec![Check::failed(
            name,
            format!("the forge did not answer within {} s", PREFLIGHT_LIMIT.as_secs()),
            "ask again; then look at GITLAB_URL",
        )],
        Ok(Err(error)) => vec![Check::failed(name, error.to_string(), todo)],
        Ok(Ok(found)) => {
            let mut problems = [found.refusals, found.problems].concat();
            if let Some(id) = settings.project_id.filter(|id| *id != found.project_id) {
                problems.push(format!(
                    "the project {} is number {} on the forge, and the partition was set up for number {id}",
                    settings.project, found.project_id
                ));
            }
            Check::all(&name, problems, todo)
        }
    }
}
