//! Branches, trees, files, merge bases and comparisons.

use axum::{
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    app::App,
    commit_view,
    errors::{ApiError, ApiResult, created, ok},
    paging::paged,
    params::Call,
    routes_commits::refuse_push,
    tree::Listed,
};

async fn branch_view(app: &App, name: &str, head: &str) -> ApiResult<Value> {
    let is_target = name == app.project.target_branch;
    let (protected, may_push) = {
        let world = app.world();
        (is_target && world.knobs.project.target_protected, !is_target || world.knobs.project.may_merge)
    };
    let merged = !is_target && app.repo.is_ancestor(head, &format!("refs/heads/{}", app.project.target_branch)).await?;
    Ok(json!({
        "name": name,
        "commit": commit_view::commit(app, head).await?,
        "merged": merged,
        "protected": protected,
        "developers_can_push": false,
        "developers_can_merge": false,
        "can_push": may_push,
        "default": is_target,
        "web_url": format!("{}/-/tree/{name}", app.web_url()),
    }))
}

/// `GET repository/branches?search=`
pub(crate) async fn branches(call: Call) -> ApiResult {
    let search = call.params.filled("search").unwrap_or_default();
    let wanted = |name: &str| match search.strip_prefix('^') {
        Some(start) => name.starts_with(start),
        None => name.contains(&search),
    };
    let mut views = Vec::new();
    for (name, head) in call.app.repo.branches().await?.into_iter().filter(|(name, _)| wanted(name)) {
        views.push(branch_view(&call.app, &name, &head).await?);
    }
    Ok(paged(&call, &views))
}

/// `GET repository/branches/:branch`
pub(crate) async fn branch(call: Call) -> ApiResult {
    let name = call.path("branch")?;
    match call.app.repo.branch(name).await? {
        Some(head) => Ok(ok(branch_view(&call.app, name, &head).await?)),
        None => Err(ApiError::not_found("Branch")),
    }
}

/// `POST repository/branches`
pub(crate) async fn create_branch(call: Call) -> ApiResult {
    let app = &call.app;
    call.params.require(&["branch", "ref"])?;
    let (name, from) = (call.params.expect("branch")?, call.params.expect("ref")?);
    refuse_push(app, &name)?;
    let _gate = app.gate.lock().await;
    if !app.repo.is_valid_branch_name(&name).await? {
        return Err(ApiError::bad("Branch name is invalid"));
    }
    if app.repo.branch(&name).await?.is_some() {
        return Err(ApiError::bad("Branch already exists"));
    }
    let head = app.repo.commit_of(&from).await?.ok_or_else(|| ApiError::bad(format!("Invalid reference name: {from}")))?;
    if !app.repo.move_ref(&format!("refs/heads/{name}"), &head, None).await? {
        return Err(ApiError::bad("Branch already exists"));
    }
    app.world().born.insert(name.clone(), std::time::Instant::now());
    Ok(created(branch_view(app, &name, &head).await?))
}

/// `DELETE repository/branches/:branch`
pub(crate) async fn delete_branch(call: Call) -> ApiResult {
    let app = &call.app;
    let name = call.path("branch")?;
    let _gate = app.gate.lock().await;
    if app.repo.branch(name).await?.is_none() {
        return Err(ApiError::not_found("Branch"));
    }
    if name == app.project.target_branch {
        return Err(ApiError::message(StatusCode::FORBIDDEN, "Cannot remove HEAD branch"));
    }
    app.repo.delete_branch(name).await?;
    app.wake.notify_one();
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET repository/merge_base?refs[]=a&refs[]=b`
pub(crate) async fn merge_base(call: Call) -> ApiResult {
    call.params.require(&["refs"])?;
    let refs = call.params.list("refs");
    if refs.len() < 2 {
        return Err(ApiError::bad("Provide at least 2 refs"));
    }
    let (mut commits, mut unknown) = (Vec::new(), Vec::new());
    for name in &refs {
        match call.app.repo.commit_of(name).await? {
            Some(id) => commits.push(id),
            None => unknown.push(name.as_str()),
        }
    }
    if !unknown.is_empty() {
        let noun = if unknown.len() == 1 { "ref" } else { "refs" };
        return Err(ApiError::bad(format!("Could not find {noun}: {}", unknown.join(", "))));
    }
    let commits: Vec<&str> = commits.iter().map(String::as_str).collect();
    match call.app.repo.merge_base(&commits).await? {
        Some(base) => Ok(ok(commit_view::commit(&call.app, &base).await?)),
        None => Err(ApiError::not_found("Merge Base")),
    }
}

/// `GET repository/tree?path=&ref=&recursive=`
pub(crate) async fn tree(call: Call) -> ApiResult {
    let Call { app, params, .. } = &call;
    let reference = params.filled("ref").unwrap_or_else(|| app.project.target_branch.clone());
    let commit = app.repo.commit_of(&reference).await?.ok_or_else(|| ApiError::not_found("Tree"))?;
    let path = params.filled("path").map(|path| path.trim_matches('/').to_owned()).unwrap_or_default();
    let recursive = params.flag("recursive");
    let mut args = if recursive { vec!["-r", "-t"] } else { Vec::new() };
    let revision = format!("{commit}:{path}");
    args.push(&revision);
    let kind = app.repo.attempt(&["cat-file", "-t", &revision], b"", &[]).await?;
    if kind.stdout != b"tree\n" {
        return Err(ApiError::not_found("invalid revision or path"));
    }
    let mut entries = app.repo.list(&args).await?;
    // GitLab lists folders before files.
    entries.sort_by_key(|entry| (entry.kind != "tree", entry.path.clone()));
    let view = |entry: &Listed| {
        let full = if path.is_empty() { entry.path.clone() } else { format!("{path}/{}", entry.path) };
        json!({ "id": entry.id, "name": full.rsplit('/').next(), "type": entry.kind, "path": full, "mode": entry.mode })
    };
    let views: Vec<Value> = entries.iter().map(view).collect();
    Ok(paged(&call, &views))
}

/// The file that the path names at `ref`, its commit, and its content.
async fn find_file(call: &Call) -> ApiResult<(Listed, String, String, Vec<u8>)> {
    let app = &call.app;
    let reference = call.params.filled("ref").unwrap_or_else(|| "HEAD".to_owned());
    let commit = app.repo.commit_of(&reference).await?.ok_or_else(|| ApiError::not_found("Commit"))?;
    let found = app.repo.file_at(&commit, call.path("path")?).await?.ok_or_else(|| ApiError::not_found("File"))?;
    let content = app.repo.blobs(std::slice::from_ref(&found.id)).await?.remove(&found.id).unwrap_or_default();
    Ok((found, reference, commit, content))
}

/// `GET repository/files/:path?ref=`
pub(crate) async fn file(call: Call) -> ApiResult {
    let (found, reference, commit, content) = find_file(&call).await?;
    let last = call.app.repo.text(&["rev-list", "-1", &commit, "--", &found.path]).await?;
    Ok(ok(json!({
        "file_name": found.path.rsplit('/').next(),
        "file_path": found.path,
        "size": content.len(),
        "encoding": "base64",
        "content_sha256": hex::encode(Sha256::digest(&content)),
        "ref": reference,
        "blob_id": found.id,
        "commit_id": commit,
        "last_commit_id": last,
        "execute_filemode": found.mode == "100755",
        "content": STANDARD.encode(&content),
    })))
}

/// `GET repository/files/:path/raw?ref=`
pub(crate) async fn raw_file(call: Call) -> ApiResult<Response> {
    let (_, _, _, content) = find_file(&call).await?;
    raw(content)
}

/// The content of the blob that the path names.
async fn find_blob(call: &Call) -> ApiResult<Vec<u8>> {
    let id = call.path("sha")?.to_owned();
    let kind = call.app.repo.attempt(&["cat-file", "-t", &id], b"", &[]).await?;
    if kind.stdout != b"blob\n" || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ApiError::not_found("Blob"));
    }
    Ok(call.app.repo.blobs(std::slice::from_ref(&id)).await?.remove(&id).unwrap_or_default())
}

/// `GET repository/blobs/:sha`
pub(crate) async fn blob(call: Call) -> ApiResult {
    let content = find_blob(&call).await?;
    let sha = call.path("sha")?;
    Ok(ok(json!({ "size": content.len(), "encoding": "base64", "content": STANDARD.encode(&content), "sha": sha })))
}

/// `GET repository/blobs/:sha/raw`
pub(crate) async fn raw_blob(call: Call) -> ApiResult<Response> {
    raw(find_blob(&call).await?)
}

fn raw(content: Vec<u8>) -> ApiResult<Response> {
    let response = Response::builder().header("content-type", "text/plain").body(Body::from(content));
    response.map_err(|error| anyhow::Error::from(error).into())
}

/// `GET repository/compare?from=&to=&straight=`
pub(crate) async fn compare(call: Call) -> ApiResult {
    let Call { app, params, .. } = &call;
    params.require(&["from", "to"])?;
    let (from, to) = (params.expect("from")?, params.expect("to")?);
    let (Some(from), Some(to)) = (app.repo.commit_of(&from).await?, app.repo.commit_of(&to).await?) else {
        return Err(ApiError::not_found("Ref"));
    };
    let commits = commit_view::log(app, &["--reverse", &format!("{from}..{to}"), "--"]).await?;
    let dots = if params.flag("straight") { ".." } else { "..." };
    let diffs = super::diffs::between(&app.repo, &format!("{from}{dots}{to}")).await?;
    Ok(ok(json!({
        "commit": commits.last(),
        "commits": commits,
        "diffs": diffs,
        "compare_timeout": false,
        "compare_same_ref": from == to,
        "web_url": format!("{}/-/compare/{from}{dots}{to}", app.web_url()),
    })))
}
