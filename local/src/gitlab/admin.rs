//! `/_standin/…`: what a person, a test or the demo does to the forge behind the API's back. Loopback only, no token.
//!
//! | call | body |
//! |---|---|
//! | `GET merge_requests` | |
//! | `POST merge_requests/:iid/{close,reopen,merge,lock,unlock,unstick}` | `{"by": user name}`, optional |
//! | `POST merge_requests/:iid/{retitle,retarget}` | `{"by", "to": title or branch}` |
//! | `GET`, `PUT pipeline`: what pipelines do from now on | `{"kind": "pass", "fail", "hang", "none", "fail_if_path", "fail_if_content", "after_ms", "substring"}` |
//! | `POST pipelines`: one of a branch; `PUT pipelines/:id` | `{"branch", "status"}`; `{"status"}` |
//! | `GET`, `PUT webhook` | `{"url", "secret"}` or `null` |
//! | `GET deliveries`, `POST deliveries/:n/resend`, counted from 0: the same once more | |
//! | `POST push`: one commit by a person | `{"branch", "files": {path: text or null}, "message", "by"}` |
//! | `GET`, `POST`, `DELETE faults` | a `Fault`, such as `{"method": "POST", "path": "/repository/commits", "times": 1, "effect": {"kind": "cut", "after_effect": true}}` |
//! | `GET`, `PATCH knobs` | some fields of `Knobs`; `project` is replaced field by field |
//! | `GET`, `PUT chaos` | a `Chaos`: shares and a seed |
//! | `POST scenario` | a `Scenario`: all of the above at once, and what people do then |
//! | `GET`, `DELETE calls` | |

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post, put},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    app::App,
    errors::{ApiError, ApiResult, created, ok},
    merge_request::{MergeParams, MrState, Person},
    pipeline::{PipelinePlan, Status},
    repo::NewCommit,
    routes_close,
    tree::{Entry, Files},
    webhook::Webhook,
};

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/_standin/merge_requests", get(merge_requests))
        .route("/_standin/merge_requests/{iid}/{verb}", post(act))
        .route("/_standin/pipelines", post(add_pipeline))
        .route("/_standin/pipelines/{id}", put(end_pipeline))
        .route("/_standin/pipeline", get(plan).put(set_plan))
        .route("/_standin/webhook", get(webhook).put(set_webhook))
        .route("/_standin/deliveries", get(deliveries))
        .route("/_standin/deliveries/{number}/resend", post(resend))
        .route("/_standin/push", post(push))
        .merge(super::admin_settings::routes())
}

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> ApiResult<T> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad(format!("the body is not what this call takes: {error}")))
}

async fn merge_requests(State(app): State<Arc<App>>) -> Json<Value> {
    let world = app.world();
    let views: Vec<_> = world.merge_requests.values().map(|found| world.view(found)).collect();
    Json(json!(views))
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Act {
    /// User name of the person who acts.
    by: Option<String>,
    /// The new title or target branch.
    to: Option<String>,
}

/// `POST merge_requests/:iid/{close|reopen|merge|lock|unlock|unstick|retitle|retarget}` as a person
async fn act(State(app): State<Arc<App>>, Path((iid, verb)): Path<(u64, String)>, body: Bytes) -> ApiResult {
    let act: Act = if body.is_empty() { Act::default() } else { parse(&body)? };
    let by = Person::named(act.by.as_deref().unwrap_or("alice"));
    let known = app.world().merge_requests.contains_key(&iid);
    if !known {
        return Err(ApiError::not_found(""));
    }
    match verb.as_str() {
        "close" => routes_close::close(&app, iid, &by).await?,
        "reopen" => routes_close::reopen(&app, iid, &by).await?,
        "merge" => {
            // A person with the right to do so merges whatever the pipeline says.
            if !app.merge(iid, MergeParams::default(), by).await? {
                return Err(ApiError::message(StatusCode::UNPROCESSABLE_ENTITY, "Branch cannot be merged"));
            }
        }
        "lock" | "unlock" => {
            let (from, to) = if verb == "lock" { (MrState::Opened, MrState::Locked) } else { (MrState::Locked, MrState::Opened) };
            let mut world = app.world();
            if let Some(found) = world.merge_requests.get_mut(&iid).filter(|found| found.state == from) {
                found.state = to;
            }
        }
        "unstick" => app.unstick(iid, &by).await?,
        "retitle" | "retarget" => {
            let to = act.to.ok_or_else(|| ApiError::bad(format!("{verb} needs \"to\"")))?;
            app.edit(iid, verb == "retarget", to, &by)?;
        }
        _ => {
            let verbs = "close, reopen, merge, lock, unlock, unstick, retitle, retarget";
            return Err(ApiError::bad(format!("'{verb}' is not one of {verbs}")));
        }
    }
    app.wake.notify_one();
    let world = app.world();
    Ok(ok(json!(world.merge_requests.get(&iid).map(|found| world.view(found)))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BranchPipeline {
    branch: String,
    status: Status,
}

/// `POST pipelines {"branch","status"}`: a pipeline of a branch at its present head.
async fn add_pipeline(State(app): State<Arc<App>>, body: Bytes) -> ApiResult {
    let BranchPipeline { branch, status } = parse(&body)?;
    let id = app.add_branch_pipeline(&branch, status).await?;
    Ok(created(json!({ "id": id, "status": status.name() })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    status: Status,
}

/// `PUT pipelines/:id {"status":"success"}`: ends (or restarts) a pipeline now.
async fn end_pipeline(State(app): State<Arc<App>>, Path(id): Path<u64>, body: Bytes) -> ApiResult {
    let End { status } = parse(&body)?;
    let mut world = app.world();
    if !world.pipelines.contains_key(&id) {
        return Err(ApiError::not_found(""));
    }
    app.enter(&mut world, id, status);
    Ok(ok(json!({ "id": id, "status": status.name() })))
}

async fn plan(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!(app.world().plan))
}

async fn set_plan(State(app): State<Arc<App>>, body: Bytes) -> ApiResult {
    let plan: PipelinePlan = parse(&body)?;
    app.world().plan = plan.clone();
    Ok(ok(json!(plan)))
}

async fn webhook(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!(app.world().webhook))
}

/// `PUT webhook {"url","secret"}`, or `null` for none
async fn set_webhook(State(app): State<Arc<App>>, body: Bytes) -> ApiResult {
    let hook: Option<Webhook> = parse(&body)?;
    app.world().webhook.clone_from(&hook);
    Ok(ok(json!(hook)))
}

async fn deliveries(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!(app.world().deliveries))
}

/// `POST deliveries/:n/resend`: as GitLab's own button, with the same Idempotency-Key.
async fn resend(State(app): State<Arc<App>>, Path(number): Path<usize>) -> ApiResult {
    if !app.resend(number) {
        return Err(ApiError::not_found(""));
    }
    Ok(created(json!({ "resent": number })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Push {
    branch: String,
    /// Content by path; `null` deletes.
    files: BTreeMap<String, Option<String>>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    by: Option<String>,
}

/// `POST push`: a person pushes one commit to a branch, which is made from the target branch if it does not exist.
async fn push(State(app): State<Arc<App>>, body: Bytes) -> ApiResult {
    let push: Push = parse(&body)?;
    let changes = push.files.into_iter().map(|(path, content)| (path, content.map(String::into_bytes))).collect();
    let message = push.message.as_deref().unwrap_or("A change by hand");
    let by = Person::named(push.by.as_deref().unwrap_or("alice"));
    let id = app.push(&push.branch, changes, message, &by).await?;
    Ok(created(json!({ "id": id })))
}

impl App {
    /// A commit by a person, straight onto a branch.
    pub async fn push(
        &self,
        branch: &str,
        changes: BTreeMap<String, Option<Vec<u8>>>,
        message: &str,
        by: &Person,
    ) -> anyhow::Result<String> {
        let _gate = self.gate.lock().await;
        let head = self.repo.branch(branch).await?;
        let parent = match &head {
            Some(head) => head.clone(),
            None => self.repo.text(&["rev-parse", &format!("refs/heads/{}", self.project.target_branch)]).await?,
        };
        let (deleted, written): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(_, content)| content.is_none());
        let deleted: Vec<Vec<u8>> = deleted.into_iter().map(|(path, _)| path.into_bytes()).collect();
        let (paths, contents): (Vec<String>, Vec<Vec<u8>>) =
            written.into_iter().map(|(path, content)| (path, content.unwrap_or_default())).unzip();
        let ids = self.repo.write_blobs(&contents).await?;
        let files: Files = paths.into_iter().map(String::into_bytes).zip(ids.into_iter().map(Entry::file)).collect();
        let tree = self.repo.write_tree(Some(&parent), &deleted, &files).await?;
        let author = by.signature();
        let parents = [parent.as_str()];
        let commit = NewCommit { tree: &tree, parents: &parents, message, author: &author, committer: &author };
        let id = self.repo.commit_tree(&commit).await?;
        if !self.repo.move_ref(&format!("refs/heads/{branch}"), &id, head.as_deref()).await? {
            anyhow::bail!("the branch {branch} moved while a person pushed to it");
        }
        self.refresh_all().await?;
        self.wake.notify_one();
        Ok(id)
    }
}
