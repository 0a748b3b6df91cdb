//! plan: what the next round would claim, and what that would change on the target branch. Writes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use adapters::forge::{Forge, ForgeError, PathQuery, ProjectRef};
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde_json::{Value, json};
use shared::StoreError;
use shared::decide::render::{BaseFile, Rendered, render};
use shared::ids::{OperationId, PartitionKey};
use shared::read::plan::{Plan, contents, plan};
use shared::request::{Base, FileChange};

use crate::answer::Answer;
use crate::fields::Fields;

/// All questions to the forge together.
const FORGE_LIMIT: Duration = Duration::from_secs(20);

type Members = Vec<(OperationId, Vec<FileChange>)>;

pub async fn show<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    fields.skip_signature();
    let key = fields.needed_id("partition", PartitionKey::parse);
    let problems = fields.end(Vec::new());
    let (Some(key), true) = (key, problems.is_empty()) else { return Ok(Answer::malformed(problems)) };
    let Some(plan) = plan(&relay.store, &key).await? else {
        return Ok(Answer::refused(format!("there is no partition {key}; list_partitions names them"), Value::Null));
    };
    let members = contents(&relay.store, &plan.chosen.members).await?;
    let changes = match tokio::time::timeout(FORGE_LIMIT, changes(&relay.forge, &plan, &members)).await {
        Ok(Ok(changes)) => changes,
        Ok(Err(error)) => json!({ "unknown": error.to_string() }),
        Err(_) => json!({ "unknown": format!("the forge did not answer within {} s; ask again", FORGE_LIMIT.as_secs()) }),
    };
    Ok(Answer::read("plan", shown(&plan, &members, changes)))
}

fn shown(plan: &Plan, members: &Members, changes: Value) -> Value {
    let files: BTreeMap<&OperationId, usize> = members.iter().map(|(operation, files)| (operation, files.len())).collect();
    let rows: Vec<Value> = plan
        .chosen
        .members
        .iter()
        .map(|one| json!({ "operation_id": one.operation, "files": files.get(&one.operation), "bytes": one.bytes, "waited_s": one.waited_s }))
        .collect();
    json!({
        "partition": plan.partition.key,
        "outcome": outcome(plan),
        "batch_id": plan.holder,
        "suspect_of": plan.chosen.suspect_of.map(|batch| batch.to_string()),
        "waiting": plan.candidates.len(),
        "bytes": plan.chosen.members.iter().map(|one| one.bytes).sum::<u64>(),
        "members": rows,
        "changes": changes,
    })
}

/// What a scheduled round would answer now, in its words.
fn outcome(plan: &Plan) -> &'static str {
    if plan.partition.pause.as_ref().is_some_and(|pause| pause.holds) {
        "paused"
    } else if plan.holder.is_some() {
        "slot_occupied"
    } else if plan.chosen.members.is_empty() {
        "nothing_to_claim"
    } else if plan.is_held_back() {
        "held_back"
    } else {
        "would_claim"
    }
}

/// The members rendered on the target branch as it is now.
async fn changes<F: Forge>(forge: &F, plan: &Plan, members: &Members) -> Result<Value, ForgeError> {
    if members.is_empty() {
        return Ok(Value::Null);
    }
    let settings = &plan.partition.settings;
    let project = ProjectRef { path: settings.project.clone(), id: settings.project_id, target_branch: settings.target_branch.clone() };
    let start_sha = forge.target_head(&project).await?;
    let queries: Vec<PathQuery> = members
        .iter()
        .flat_map(|(_, files)| files)
        .map(|file| PathQuery { path: file.path.clone(), hash: matches!(file.base, Some(Base::Sha256(_))) })
        .collect();
    let existing = forge.existing_paths(&project, &start_sha, &queries).await?;
    let base = existing.into_iter().map(|(path, file)| (path, BaseFile { blob_id: file.blob_id, sha256: file.sha256 })).collect();
    Ok(summary(&start_sha, &render(members, &base, &settings.allowed_prefixes)))
}

fn summary(start_sha: &str, rendered: &Rendered) -> Value {
    let paths = |wanted: fn(bool, bool) -> bool| -> Vec<&str> {
        let those = rendered.files.iter().filter(|file| wanted(file.content.is_some(), file.exists));
        those.map(|file| file.path.as_str()).collect()
    };
    let expelled: Vec<Value> =
        rendered.expelled.iter().map(|one| json!({ "operation_id": one.operation, "code": one.code, "reason": one.reason })).collect();
    json!({
        "start_sha": start_sha,
        "created": paths(|is_written, exists| is_written && !exists),
        "updated": paths(|is_written, exists| is_written && exists),
        "deleted": paths(|is_written, _| !is_written),
        "rejected": expelled,
    })
}
