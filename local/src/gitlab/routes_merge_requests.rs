//! Merge requests: opening, finding and reading. Closing and merging have their own files.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{
    app::App,
    errors::{ApiError, ApiResult, created, ok},
    knobs::{Knobs, take},
    merge_request::{Check, MergeRequest, MrState, Person},
    paging::paged,
    params::{Call, Params},
    views,
    webhook::Action,
};

/// `POST merge_requests`
pub(crate) async fn create(call: Call) -> ApiResult {
    let Call { app, params, .. } = &call;
    params.require(&["source_branch", "target_branch", "title"])?;
    let (source, target) = (params.expect("source_branch")?, params.expect("target_branch")?);
    if source == target {
        let text = "You can't use same project/branch for source and target";
        return Err(ApiError::messages(StatusCode::UNPROCESSABLE_ENTITY, text));
    }
    let archived = app.world().knobs.project.archived;
    if archived {
        return Err(ApiError::message(StatusCode::FORBIDDEN, "403 Forbidden"));
    }
    let _gate = app.gate.lock().await;
    let head = app.repo.branch(&source).await?.filter(|_| is_visible(app, &source));
    let head = head.ok_or_else(|| ApiError::field("source_branch", "does not exist"))?;
    let target_head = app.repo.branch(&target).await?.ok_or_else(|| ApiError::field("target_branch", "does not exist"))?;
    refuse_second(app, &source, &target, 0)?;
    let iid = {
        let mut world = app.world();
        world.last_iid += 1;
        world.last_iid
    };
    app.repo.force_ref(&format!("refs/merge-requests/{iid}/head"), &head).await?;
    let now = OffsetDateTime::now_utc();
    let opened = MergeRequest {
        iid,
        title: params.expect("title")?,
        description: params.text("description").unwrap_or_default(),
        labels: params.list("labels"),
        author: Person::bot(),
        source_branch: source,
        target_branch: target,
        state: MrState::Opened,
        head,
        target_head,
        source_missing: false,
        squash: params.flag("squash"),
        remove_source: params.flag("remove_source_branch"),
        changed_files: None,
        base: None,
        check: Check::Preparing,
        check_at: Instant::now(),
        auto_merge: None,
        merge_error: None,
        merge_commit_sha: None,
        squash_commit_sha: None,
        merged: None,
        closed: None,
        prepared_at: None,
        created_at: now,
        updated_at: now,
        pipeline_due: None,
    };
    let mut world = app.world();
    world.merge_requests.insert(iid, opened.clone());
    app.announce(&mut world, iid, Action::Open, &opened.author);
    app.wake.notify_one();
    Ok(created(views::merge_request(app, &world, &opened, true)))
}

/// A branch is on disk before the part of GitLab that opens merge requests can see it.
fn is_visible(app: &App, branch: &str) -> bool {
    let world = app.world();
    let lag = Duration::from_millis(world.knobs.branch_lag_ms);
    world.born.get(branch).is_none_or(|born| born.elapsed() >= lag)
}

pub(crate) fn refuse_second(app: &App, source: &str, target: &str, except: u64) -> ApiResult<()> {
    match app.world().open_for(source, target, except) {
        Some(other) => {
            let text = format!("Another open merge request already exists for this source branch: !{other}");
            Err(ApiError::messages(StatusCode::CONFLICT, text))
        }
        None => Ok(()),
    }
}

/// The merge request of the path, brought up to date.
pub(crate) async fn find(call: &Call) -> ApiResult<MergeRequest> {
    let iid = call.id("iid")?;
    let known = call.app.world().merge_requests.contains_key(&iid);
    if !known {
        return Err(ApiError::not_found(""));
    }
    let _gate = call.app.gate.lock().await;
    call.app.refresh(iid, false).await?;
    call.app.world().merge_requests.get(&iid).cloned().ok_or_else(|| ApiError::not_found(""))
}

pub(crate) fn view(app: &App, iid: u64) -> ApiResult<Value> {
    let world = app.world();
    let found = world.merge_requests.get(&iid).ok_or_else(|| ApiError::not_found(""))?;
    Ok(views::merge_request(app, &world, found, true))
}

/// `GET merge_requests/:iid`. Reading is what moves the mergeability check on: the answer shows it before that step.
pub(crate) async fn get(call: Call) -> ApiResult {
    let found = find(&call).await?;
    let mut shown = view(&call.app, found.iid)?;
    garble(&mut call.app.world().knobs, &mut shown);
    let _gate = call.app.gate.lock().await;
    call.app.refresh(found.iid, true).await?;
    Ok(ok(shown))
}

/// What a busy forge withholds, and what a later version answers.
fn garble(knobs: &mut Knobs, shown: &mut Value) {
    if take(&mut knobs.sha_withheld) {
        shown["sha"] = Value::Null;
        shown["diff_refs"] = Value::Null;
    }
    if take(&mut knobs.unknown_values) {
        for field in ["state", "merge_status", "detailed_merge_status"] {
            shown[field] = json!(format!("a_{field}_of_tomorrow"));
        }
        if shown["head_pipeline"].is_object() {
            shown["head_pipeline"]["status"] = json!("a_pipeline_status_of_tomorrow");
        }
        shown["a_field_of_tomorrow"] = json!({ "of": ["any", 1, null] });
    }
}

/// `GET merge_requests` of the project
pub(crate) async fn list(call: Call) -> ApiResult {
    let Call { app, params, .. } = &call;
    if let Some(state) = params.filled("state")
        && !["opened", "closed", "locked", "merged", "all"].contains(&state.as_str())
    {
        return Err(ApiError::parameter("state does not have a valid value"));
    }
    let mut world = app.world();
    let mut found: Vec<&MergeRequest> = world.merge_requests.values().filter(|found| matches(params, found)).collect();
    let by_update = params.text("order_by").as_deref() == Some("updated_at");
    found.sort_by_key(|found| (if by_update { found.updated_at } else { found.created_at }, found.iid));
    if params.text("sort").as_deref() != Some("asc") {
        found.reverse();
    }
    let mut views: Vec<Value> = found.into_iter().map(|found| views::merge_request(app, &world, found, false)).collect();
    let stale = Duration::from_millis(world.knobs.lists_stale_ms);
    for view in &mut views {
        let iid = view["iid"].as_u64().unwrap_or_default();
        match world.listed.get(&iid).filter(|(since, _)| since.elapsed() < stale) {
            Some((_, shown)) => view.clone_from(shown),
            None => drop(world.listed.insert(iid, (Instant::now(), view.clone()))),
        }
    }
    drop(world);
    Ok(paged(&call, &views))
}

fn matches(params: &Params, found: &MergeRequest) -> bool {
    let is = |name: &str, value: &str| params.filled(name).is_none_or(|wanted| wanted == value);
    let state = params.filled("state").is_none_or(|wanted| wanted == "all" || wanted == found.state.name());
    let iids = params.list("iids");
    let search = params.filled("search").map(|text| text.to_lowercase());
    let after = |name: &str, at: OffsetDateTime| params.filled(name).is_none_or(|after| views::iso(at) >= after);
    state
        && is("source_branch", &found.source_branch)
        && is("target_branch", &found.target_branch)
        && is("author_username", &found.author.username)
        && is("author_id", &found.author.id.to_string())
        && (iids.is_empty() || iids.contains(&found.iid.to_string()))
        && params.list("labels").iter().all(|label| found.labels.contains(label))
        && after("updated_after", found.updated_at)
        && after("created_after", found.created_at)
        && search.is_none_or(|text| found.title.to_lowercase().contains(&text) || found.description.to_lowercase().contains(&text))
}

/// `GET merge_requests/:iid/commits`
pub(crate) async fn commits(call: Call) -> ApiResult {
    let found = find(&call).await?;
    let range = format!("{}..{}", found.target_head, found.head);
    let commits = super::commit_view::log(&call.app, &[&range, "--"]).await?;
    Ok(paged(&call, &commits))
}

/// `GET merge_requests/:iid/approvals`: this project asks for none.
pub(crate) async fn approvals(call: Call) -> ApiResult {
    let found = find(&call).await?;
    Ok(ok(json!({ "iid": found.iid, "approvals_required": 0, "approvals_left": 0, "approved": true, "approved_by": [] })))
}
