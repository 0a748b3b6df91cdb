//! What would never merge, or is dangerous, told before the first round.

use serde::Deserialize;

use super::branches;
use super::client::Client;
use super::hooks;
use super::route::of_project;
use super::wire::Branch;
use crate::forge::{ForgeError, Preflight, ProjectRef};

/// GitLab's number of the role that may push to unprotected branches and open merge requests.
const DEVELOPER: u64 = 30;
const MAINTAINER: u64 = 40;

/// The oldest major version whose API we know.
const OLDEST_MAJOR: u64 = 15;

#[derive(Debug, Deserialize)]
struct Project {
    id: u64,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    squash_option: Option<String>,
    #[serde(default)]
    merge_method: Option<String>,
    #[serde(default)]
    only_allow_merge_if_pipeline_succeeds: Option<bool>,
    #[serde(default)]
    builds_access_level: Option<String>,
    #[serde(default)]
    merge_requests_access_level: Option<String>,
    #[serde(default)]
    permissions: Option<Permissions>,
}

#[derive(Debug, Deserialize)]
struct Permissions {
    project_access: Option<Access>,
    group_access: Option<Access>,
}

#[derive(Debug, Deserialize)]
struct Access {
    access_level: u64,
}

#[derive(Debug, Deserialize)]
struct Token {
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default)]
    active: Option<bool>,
    #[serde(default)]
    revoked: bool,
    #[serde(default)]
    expires_at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
}

pub(super) async fn preflight(client: &Client, project: &ProjectRef) -> Result<Preflight, ForgeError> {
    let reply = client.get("read the project", &of_project(project, "")).await?;
    let found: Project = match reply.status {
        200 => reply.parse()?,
        404 => return Err(branches::unknown_project(project)),
        _ => return Err(reply.unexpected()),
    };
    let mut refusals = hopeless_settings(&found);
    let mut problems: Vec<String> = too_low_a_role(&found).into_iter().chain(slow_merges(&found)).collect();
    match branches::read(client, project, &project.target_branch).await? {
        Some(branch) => problems.extend(of_branch(&branch, &found, project)),
        None => refusals.push(format!("The project has no branch {}; create it or name another target branch.", project.target_branch)),
    }
    problems.extend(of_token(client).await?);
    problems.extend(of_version(client).await?);
    problems.extend(hooks::problems(client, project).await?);
    Ok(Preflight { project_id: found.id, refusals, problems })
}

/// Settings with which nothing would ever merge, or not as we rendered it.
fn hopeless_settings(found: &Project) -> Vec<String> {
    let mut refusals = Vec::new();
    let mut check = |wrong: bool, sentence: &str| {
        if wrong {
            refusals.push(sentence.to_owned());
        }
    };
    check(found.archived, "The project is archived and takes no commits; unarchive it.");
    check(
        found.squash_option.as_deref() == Some("always"),
        "The project forces squashing, which would replace our commit by another one; set \"Squash commits when merging\" to Allow or Do not allow.",
    );
    check(found.merge_requests_access_level.as_deref() == Some("disabled"), "Merge requests are disabled in the project; enable them.");
    check(
        found.only_allow_merge_if_pipeline_succeeds == Some(true) && found.builds_access_level.as_deref() == Some("disabled"),
        "The project requires a successful pipeline and has CI/CD disabled, so nothing would ever merge; change one of the two.",
    );
    refusals
}

fn too_low_a_role(found: &Project) -> Option<String> {
    let sentence = "Our token's user may not push branches to the project; give it at least the role Developer.";
    level_of(found).is_some_and(|level| level < DEVELOPER).then(|| sentence.to_owned())
}

/// Without merge commits, whatever lands on the branch while a batch is open sends that batch back.
fn slow_merges(found: &Project) -> Option<String> {
    let method = found.merge_method.as_deref().filter(|method| ["ff", "rebase_merge"].contains(method))?;
    Some(format!(
        "The project's merge method is {method}, which merges nothing that is behind its branch: a batch waits in vain whenever somebody else's \
         change lands before it, and its requests wait for another round; set it to \"Merge commit\", or let only Muster merge into the branch."
    ))
}

/// Highest role our user has in the project; `None` where GitLab does not say.
fn level_of(found: &Project) -> Option<u64> {
    let permissions = found.permissions.as_ref()?;
    [&permissions.project_access, &permissions.group_access].into_iter().flatten().map(|access| access.access_level).max()
}

fn of_branch(branch: &Branch, found: &Project, project: &ProjectRef) -> Option<String> {
    let level = level_of(found)?;
    let shut = branch.protected && level < MAINTAINER && !branch.developers_can_merge && branch.can_push != Some(true);
    shut.then(|| {
        format!(
            "Branch {} is protected and our token's user is not shown as allowed to merge into it; allow it, or give it the role Maintainer.",
            project.target_branch
        )
    })
}

async fn of_token(client: &Client) -> Result<Vec<String>, ForgeError> {
    let unreadable = |detail: String| {
        vec![format!("Our token cannot be read ({detail}), so that its scope and expiry are unknown; check that it has scope `api`.")]
    };
    let reply = match client.get("read our token", "personal_access_tokens/self").await {
        Ok(reply) => reply,
        Err(ForgeError::Unauthorized { detail }) => return Ok(unreadable(detail)),
        Err(error) => return Err(error),
    };
    match reply.status {
        200 => Ok(of_token_facts(&reply.parse()?)),
        _ => Ok(unreadable(reply.text())),
    }
}

fn of_token_facts(token: &Token) -> Vec<String> {
    let mut problems = Vec::new();
    if !token.scopes.iter().any(|scope| scope == "api") {
        problems.push(format!("Our token has the scopes {:?} and not `api`; make one that has it.", token.scopes));
    }
    if token.revoked || token.active == Some(false) {
        let until = token.expires_at.as_deref().unwrap_or("never");
        problems.push(format!("Our token is not active any more (revoked: {}, expires: {until}); make a new one.", token.revoked));
    }
    problems
}

async fn of_version(client: &Client) -> Result<Option<String>, ForgeError> {
    let reply = match client.get("read the version", "version").await {
        Ok(reply) if reply.is_success() => reply,
        // Some instances hide it.
        Ok(_) | Err(ForgeError::Unauthorized { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Version { version } = reply.parse()?;
    let major: Option<u64> = version.split('.').next().and_then(|text| text.parse().ok());
    let old = major.is_some_and(|major| major < OLDEST_MAJOR);
    Ok(old.then(|| format!("GitLab {version} is older than {OLDEST_MAJOR}.0, the oldest that Muster knows; upgrade it.")))
}
