//! `repository/commits`: writing a commit, and reading commits back.

use std::time::Instant;

use axum::{http::StatusCode, response::Response};
use serde_json::{Value, json};

use super::{
    actions::{Actions, Changes},
    app::App,
    commit_view,
    errors::{ApiError, ApiResult, created, ok},
    merge_request::Person,
    paging::paged,
    params::{Call, Params},
    repo::{NewCommit, Signature},
    tree::{Entry, Files},
};

/// Where a new commit begins and what its branch is now.
struct Start {
    commit: String,
    /// Head of the branch written to; `None`: it is made by this commit.
    branch_head: Option<String>,
}

/// `POST repository/commits`
pub(crate) async fn create(call: Call) -> ApiResult {
    let Call { app, params, .. } = &call;
    params.require(&["branch", "commit_message"])?;
    if !params.0.contains_key("actions") && !params.flag("allow_empty") {
        return Err(ApiError::parameter("actions is missing"));
    }
    let branch = params.expect("branch")?;
    let message = params.expect("commit_message")?;
    refuse_push(app, &branch)?;
    let actions = Actions::parse(params)?;
    if actions.is_empty() && !params.flag("allow_empty") {
        return Err(ApiError::bad("No actions provided"));
    }
    let _gate = app.gate.lock().await;
    let start = find_start(app, params, &branch).await?;
    for (path, expected) in actions.expectations() {
        let last = app.repo.text(&["rev-list", "-1", &start.commit, "--", path]).await?;
        if last != expected {
            return Err(ApiError::bad(format!("The file has changed since you started editing it: {path}")));
        }
    }
    refuse_by_rule(app, &actions)?;
    let files = app.repo.files(&start.commit).await?;
    let changes = actions.apply(&files)?;
    let tree = write_changes(app, &start.commit, changes).await?;
    let committer = Person::bot().signature();
    let author = Signature {
        name: params.filled("author_name").unwrap_or_else(|| committer.name.clone()),
        email: params.filled("author_email").unwrap_or_else(|| committer.email.clone()),
    };
    let parents = [start.commit.as_str()];
    let commit = NewCommit { tree: &tree, parents: &parents, message: &message, author: &author, committer: &committer };
    let id = app.repo.commit_tree(&commit).await?;
    if !app.repo.move_ref(&format!("refs/heads/{branch}"), &id, start.branch_head.as_deref()).await? {
        return Err(ApiError::bad(format!("Could not update refs/heads/{branch}. Please refresh and try again.")));
    }
    if start.branch_head.is_none() {
        app.world().born.insert(branch, Instant::now());
    }
    app.wake.notify_one();
    let mut view = commit_view::commit(app, &id).await?;
    if params.0.get("stats") != Some(&Value::Bool(false)) {
        view["stats"] = commit_view::stats(app, &id).await?;
    }
    view["status"] = Value::Null;
    Ok(created(view))
}

pub(crate) fn refuse_push(app: &App, branch: &str) -> ApiResult<()> {
    let world = app.world();
    let settings = &world.knobs.project;
    if settings.archived {
        return Err(ApiError::message(StatusCode::FORBIDDEN, "403 Forbidden"));
    }
    let refused = settings.refused_branch.as_ref().is_some_and(|text| branch.contains(text.as_str()));
    let protected = settings.target_protected && !settings.may_merge && branch == app.project.target_branch;
    if refused || protected {
        let text = "403 Forbidden - You are not allowed to push into this branch";
        return Err(ApiError::message(StatusCode::FORBIDDEN, text));
    }
    Ok(())
}

/// A push rule of the project; its text is what GitLab's pre-receive check says.
fn refuse_by_rule(app: &App, actions: &Actions) -> ApiResult<()> {
    let world = app.world();
    let Some(rule) = &world.knobs.project.prohibited_path else { return Ok(()) };
    match actions.paths().find(|path| path.contains(rule.as_str())) {
        Some(path) => Err(ApiError::bad(format!("File name {path} was prohibited by the pattern \"{rule}\"."))),
        None => Ok(()),
    }
}

/// The checks of GitLab's `Commits::CreateService`, in its order and with its words.
async fn find_start(app: &App, params: &Params, branch: &str) -> ApiResult<Start> {
    let force = params.flag("force");
    let start_sha = params.filled("start_sha");
    let start_branch = params.filled("start_branch");
    let branch_head = app.repo.branch(branch).await?;
    let (commit, different) = match (start_sha, start_branch) {
        (Some(_), Some(_)) => return Err(ApiError::bad("You can't pass both start_branch and start_sha")),
        (Some(sha), None) => {
            if sha.len() != 40 || !sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(ApiError::bad(format!("Invalid start_sha '{sha}'")));
            }
            let found = app.repo.commit_of(&sha).await?;
            (found.ok_or_else(|| ApiError::bad(format!("Cannot find start_sha '{sha}'")))?, true)
        }
        (None, start) => {
            let name = start.unwrap_or_else(|| branch.to_owned());
            let found = app.repo.branch(&name).await?;
            let found = found.ok_or_else(|| ApiError::bad("You can only create or edit files when you are on a branch"))?;
            (found, name != branch)
        }
    };
    if different || force {
        if branch_head.is_some() && !force {
            let text = format!("A branch called '{branch}' already exists. Switch to that branch in order to make changes");
            return Err(ApiError::bad(text));
        }
        if !app.repo.is_valid_branch_name(branch).await? {
            return Err(ApiError::bad(format!("Something went wrong when we tried to create '{branch}' for you: Branch name is invalid")));
        }
    }
    Ok(Start { commit, branch_head })
}

async fn write_changes(app: &App, parent: &str, changes: Changes) -> ApiResult<String> {
    let ids = app.repo.write_blobs(&changes.contents).await?;
    let mut added: Files = changes.kept;
    for (path, (mode, number)) in changes.new {
        if let Some(id) = ids.get(number) {
            added.insert(path, Entry { mode, id: id.clone() });
        }
    }
    Ok(app.repo.write_tree(Some(parent), &changes.removed, &added).await?)
}

/// The commit that the `sha` of the path names.
async fn named(call: &Call) -> ApiResult<String> {
    let found = call.app.repo.commit_of(call.path("sha")?).await?;
    found.ok_or_else(|| ApiError::not_found("Commit"))
}

/// `GET repository/commits/:sha`
pub(crate) async fn get(call: Call) -> ApiResult {
    let id = named(&call).await?;
    let mut view = commit_view::commit(&call.app, &id).await?;
    view["stats"] = commit_view::stats(&call.app, &id).await?;
    let world = call.app.world();
    let last = world.pipelines.values().rev().find(|pipeline| pipeline.sha == id);
    view["status"] = json!(last.map(|pipeline| pipeline.status.name()));
    view["last_pipeline"] = last.map_or(Value::Null, |pipeline| super::views::pipeline(&call.app, pipeline));
    view["project_id"] = json!(call.app.project.id);
    Ok(ok(view))
}

/// What to list for a branch, tag, commit or range `a..b`, as `git log` takes it.
async fn revisions(app: &App, reference: &str) -> ApiResult<Vec<String>> {
    let (without, with) = match reference.split_once("..") {
        Some((without, with)) => (Some(without), with),
        None => (None, reference),
    };
    let unknown = || ApiError::not_found("Commit");
    let mut revisions = vec![app.repo.commit_of(with).await?.ok_or_else(unknown)?];
    if let Some(without) = without {
        revisions.push(format!("^{}", app.repo.commit_of(without).await?.ok_or_else(unknown)?));
    }
    Ok(revisions)
}

/// `GET repository/commits?ref_name=&since=&until=&path=`
pub(crate) async fn list(call: Call) -> ApiResult<Response> {
    let Call { app, params, .. } = &call;
    let reference = params.filled("ref_name").unwrap_or_else(|| app.project.target_branch.clone());
    let revisions = revisions(app, &reference).await?;
    let since = params.filled("since").map(|at| format!("--since={at}"));
    let until = params.filled("until").map(|at| format!("--until={at}"));
    let mut args: Vec<&str> = since.iter().chain(&until).map(String::as_str).collect();
    if params.flag("first_parent") {
        args.push("--first-parent");
    }
    args.extend(revisions.iter().map(String::as_str).chain(["--"]));
    let path = params.filled("path");
    args.extend(path.as_deref());
    let commits = commit_view::log(app, &args).await?;
    Ok(paged(&call, &commits))
}

/// `GET repository/commits/:sha/refs?type=branch|tag|all`
pub(crate) async fn refs(call: Call) -> ApiResult<Response> {
    let id = named(&call).await?;
    let mut found = Vec::new();
    let wanted = call.params.filled("type").unwrap_or_else(|| "all".to_owned());
    for (kind, folder) in [("branch", "refs/heads"), ("tag", "refs/tags")] {
        if wanted == "all" || wanted == kind {
            let names = call.app.repo.text(&["for-each-ref", "--contains", &id, "--format=%(refname:lstrip=2)", folder]).await?;
            found.extend(names.lines().map(|name| json!({ "type": kind, "name": name })));
        }
    }
    Ok(paged(&call, &found))
}
