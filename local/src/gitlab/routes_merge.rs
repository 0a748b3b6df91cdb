//! `PUT merge_requests/:iid/merge`, in GitLab's order of checks, and the way out of auto-merge.

use axum::http::StatusCode;
use serde_json::json;

use super::{
    errors::{ApiError, ApiResult, created, ok},
    knobs::take,
    merge_request::{MergeParams, MergeRequest, MrState, Person},
    params::{Call, Params},
    pipeline::Status,
    routes_merge_requests::{find, view},
};

/// What a call to merge comes to.
enum Verdict {
    Arm,
    MergeNow,
    NotAllowed,
}

pub(crate) async fn merge(call: Call) -> ApiResult {
    let Call { app, params, .. } = &call;
    let found = find(&call).await?;
    let sha = params.filled("sha");
    let (may_merge, sha_required) = {
        let world = app.world();
        (world.knobs.project.may_merge, world.knobs.project.sha_required)
    };
    if sha_required && sha.is_none() {
        return Err(ApiError::bad("SHA must be provided when merging"));
    }
    if !may_merge {
        return Err(ApiError::unauthorized());
    }
    if sha.as_ref().is_some_and(|sha| *sha != found.head) {
        let text = format!("SHA does not match HEAD of source branch: {}", found.head);
        return Err(ApiError::message(StatusCode::CONFLICT, text));
    }
    let auto = params.flag("auto_merge") || params.flag("merge_when_pipeline_succeeds");
    let wanted = merge_params(params, sha);
    let verdict = {
        let mut world = app.world();
        if take(&mut world.knobs.merge_405) {
            return Err(ApiError::not_allowed());
        }
        if take(&mut world.knobs.merge_unarmed) {
            drop(world);
            return Ok(ok(view(app, found.iid)?));
        }
        let status = world.detailed_status(&found);
        let pipeline = world.head_pipeline(&found).map(|pipeline| pipeline.status);
        if auto { auto_verdict(&found, status, pipeline, app.pipeline_expected(&world, &found)) } else { now_verdict(status) }
    };
    match verdict {
        Verdict::NotAllowed => Err(ApiError::not_allowed()),
        Verdict::Arm => {
            if let Some(found) = app.world().merge_requests.get_mut(&found.iid).filter(|found| found.state == MrState::Opened) {
                found.auto_merge = Some(wanted);
            }
            app.wake.notify_one();
            Ok(ok(view(app, found.iid)?))
        }
        Verdict::MergeNow => {
            if app.merge(found.iid, wanted, Person::bot()).await? {
                return Ok(ok(view(app, found.iid)?));
            }
            Err(ApiError::message(StatusCode::UNPROCESSABLE_ENTITY, "Branch cannot be merged"))
        }
    }
}

fn now_verdict(status: &str) -> Verdict {
    if status == "mergeable" { Verdict::MergeNow } else { Verdict::NotAllowed }
}

/// A strategy to wait with is there while a pipeline runs or is still to come; with none, success or no pipeline at
/// all merges at once.
fn auto_verdict(found: &MergeRequest, status: &str, pipeline: Option<Status>, expected: bool) -> Verdict {
    if found.state != MrState::Opened {
        return Verdict::NotAllowed;
    }
    match (status, pipeline) {
        ("ci_still_running", _) => Verdict::Arm,
        ("mergeable", Some(pipeline)) if pipeline.is_active() => Verdict::Arm,
        ("mergeable", _) => Verdict::MergeNow,
        // The pipeline is being created: GitLab says no until it is there.
        ("ci_must_pass", None) if expected => Verdict::NotAllowed,
        ("ci_must_pass", None) => Verdict::Arm,
        _ => Verdict::NotAllowed,
    }
}

fn merge_params(params: &Params, sha: Option<String>) -> MergeParams {
    MergeParams {
        sha,
        merge_message: params.filled("merge_commit_message"),
        squash: params.flag("squash"),
        squash_message: params.filled("squash_commit_message"),
        remove_source: params.flag("should_remove_source_branch"),
    }
}

/// `POST merge_requests/:iid/cancel_merge_when_pipeline_succeeds`: 201 whatever comes of it, the body tells.
pub(crate) async fn cancel_auto_merge(call: Call) -> ApiResult {
    let found = find(&call).await?;
    let mut world = call.app.world();
    let armed = world.merge_requests.get_mut(&found.iid).filter(|found| found.state == MrState::Opened);
    let cancelled = armed.and_then(|found| found.auto_merge.take()).is_some();
    if cancelled {
        return Ok(created(json!({ "status": "success" })));
    }
    Ok(created(json!({ "status": "error", "message": "Can't cancel the automatic merge", "http_status": 406 })))
}
