//! The one commit of a batch, made once on its own branch.
//!
//! GitLab has no compare-and-swap of a branch head. What makes the write idempotent is the name: the branch is a
//! function of the claim token, and without `force` the API refuses a branch that exists. Then it is read and adopted.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::branches;
use super::client::Client;
use super::contains::differing_paths;
use super::files::blob_id_of;
use super::refusal::{CommitRefusal, of_commit};
use super::reply::Reply;
use super::route::of_project;
use super::trailer::carries;
use super::wire::Commit;
use crate::forge::{CommitAnswer, CommitPlan, FileAction, ForgeError, ProjectRef};

#[derive(Serialize)]
struct NewCommit<'a> {
    branch: &'a str,
    start_sha: &'a str,
    commit_message: &'a str,
    actions: Vec<Action<'a>>,
    stats: bool,
}

#[derive(Serialize)]
struct Action<'a> {
    action: &'static str,
    file_path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
}

pub(super) async fn ensure(client: &Client, project: &ProjectRef, plan: &CommitPlan) -> Result<CommitAnswer, ForgeError> {
    let body = NewCommit {
        branch: &plan.branch,
        start_sha: &plan.start_sha,
        commit_message: &plan.message,
        actions: plan.actions.iter().map(written).collect(),
        stats: false,
    };
    let reply = client.post("commit", &of_project(project, "repository/commits"), &body).await?;
    match reply.status {
        200..300 => made(&reply, plan),
        400 if reply.is_parameter_error() => Err(reply.unexpected()),
        400 => refused(client, project, plan, &reply).await,
        404 => Err(branches::missing(&reply, project, "the repository")),
        413 => Ok(CommitAnswer::Refused { reason: format!("the forge does not take a commit of this size: {}", reply.text()) }),
        _ => Err(reply.unexpected()),
    }
}

fn made(reply: &Reply, plan: &CommitPlan) -> Result<CommitAnswer, ForgeError> {
    let commit: Commit = reply.parse()?;
    if commit.parent_ids == [plan.start_sha.as_str()] {
        return Ok(CommitAnswer::Committed { head_sha: commit.id });
    }
    Err(ForgeError::Unexpected {
        call: reply.call,
        status: reply.status,
        detail: format!("commit {} has parents {:?} in place of {}", commit.id, commit.parent_ids, plan.start_sha),
    })
}

async fn refused(client: &Client, project: &ProjectRef, plan: &CommitPlan, reply: &Reply) -> Result<CommitAnswer, ForgeError> {
    match of_commit(&reply.text()) {
        CommitRefusal::BranchExists => adopt(client, project, plan).await,
        CommitRefusal::Passing => Err(ForgeError::Busy { detail: reply.text() }),
        CommitRefusal::NotAllowed => Err(ForgeError::Unauthorized { detail: reply.text() }),
        CommitRefusal::Mistaken => Err(reply.unexpected()),
        CommitRefusal::Content => Ok(CommitAnswer::Refused { reason: reply.text() }),
    }
}

/// Is what the branch holds the commit that this plan would make?
async fn adopt(client: &Client, project: &ProjectRef, plan: &CommitPlan) -> Result<CommitAnswer, ForgeError> {
    let Some(branch) = branches::read(client, project, &plan.branch).await? else {
        return Err(ForgeError::Busy { detail: format!("branch {} exists and is not shown yet", plan.branch) });
    };
    let head_sha = branch.commit.id;
    let reply = client.get("read a commit", &of_project(project, &format!("repository/commits/{head_sha}"))).await?;
    let commit: Commit = match reply.status {
        200 => reply.parse()?,
        404 if !reply.misses_project() => {
            return Err(ForgeError::Busy { detail: format!("commit {head_sha} is not shown yet") });
        }
        404 => return Err(branches::unknown_project(project)),
        _ => return Err(reply.unexpected()),
    };
    let ours = carries(&commit.message, &plan.token_hex) && commit.parent_ids == [plan.start_sha.as_str()];
    if ours && differing_paths(client, project, &head_sha, &expected(plan)).await?.is_empty() {
        return Ok(CommitAnswer::Committed { head_sha });
    }
    Ok(CommitAnswer::Foreign { head_sha })
}

/// Blob id of each path after the plan; `None` where it is gone.
fn expected(plan: &CommitPlan) -> BTreeMap<String, Option<String>> {
    let after = |action: &FileAction| match action {
        FileAction::Create { path, content } | FileAction::Update { path, content } => (path.clone(), Some(blob_id_of(content.as_bytes()))),
        FileAction::Delete { path } => (path.clone(), None),
    };
    plan.actions.iter().map(after).collect()
}

fn written(action: &FileAction) -> Action<'_> {
    let with_content = |action, file_path, content: &str| {
        let (content, encoding) = if is_plain(content) { (content.to_owned(), "text") } else { (STANDARD.encode(content), "base64") };
        Action { action, file_path, content: Some(content), encoding: Some(encoding) }
    };
    match action {
        FileAction::Create { path, content } => with_content("create", path, content),
        FileAction::Update { path, content } => with_content("update", path, content),
        FileAction::Delete { path } => Action { action: "delete", file_path: path, content: None, encoding: None },
    }
}

/// GitLab refuses a request whose JSON strings hold a NUL; other control characters are kept out of harm's way too.
fn is_plain(content: &str) -> bool {
    content.chars().all(|character| !character.is_control() || matches!(character, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn content_that_json_or_a_proxy_could_change_goes_as_base64() {
        let text = FileAction::Create { path: "a".into(), content: "é\tß\n".into() };
        assert_eq!(written(&text).encoding, Some("text"));
        for content in ["a\0b", "a\r\nb", "\u{1b}[0m"] {
            let action = FileAction::Update { path: "a".into(), content: content.into() };
            let written = written(&action);
            assert_eq!(written.encoding, Some("base64"));
            assert_eq!(STANDARD.decode(written.content.unwrap()).unwrap(), content.as_bytes());
        }
    }

    #[test]
    fn a_deletion_carries_no_content() {
        let action = FileAction::Delete { path: "a".into() };
        let body = serde_json::to_value(written(&action)).unwrap();
        assert_eq!(body, serde_json::json!({"action": "delete", "file_path": "a"}));
    }
}
