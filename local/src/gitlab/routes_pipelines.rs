//! Pipelines of merge requests and of the project.

use axum::response::Response;
use serde_json::Value;

use super::{
    app::App,
    errors::{ApiError, ApiResult, created, ok},
    merge_request::MergeRequest,
    paging::paged,
    params::Call,
    pipeline::{Pipeline, PipelinePlan, Status},
    routes_merge_requests::find,
    views,
    world::World,
};

impl App {
    /// Whether a pipeline of the present head is still to appear.
    pub fn pipeline_expected(&self, world: &World, found: &MergeRequest) -> bool {
        found.pipeline_due.is_some() && world.plan != PipelinePlan::None
    }
}

/// `GET merge_requests/:iid/pipelines`, newest first
pub(crate) async fn of_merge_request(call: Call) -> ApiResult<Response> {
    let found = find(&call).await?;
    let views: Vec<Value> = {
        let world = call.app.world();
        let ours = world.pipelines.values().rev().filter(|pipeline| pipeline.is_for(found.iid));
        ours.map(|pipeline| views::pipeline(&call.app, pipeline)).collect()
    };
    Ok(paged(&call, &views))
}

/// `POST merge_requests/:iid/pipelines`: 405 where the project makes none.
pub(crate) async fn start(call: Call) -> ApiResult {
    let found = find(&call).await?;
    match call.app.start_pipeline(&found).await? {
        Some(id) => Ok(created(shown(&call.app, id)?)),
        None => Err(ApiError::not_allowed()),
    }
}

/// `GET pipelines?sha=&ref=&status=&source=&order_by=&sort=`
pub(crate) async fn list(call: Call) -> ApiResult<Response> {
    let Call { app, params, .. } = &call;
    let is = |name: &str, value: &str| params.filled(name).is_none_or(|wanted| wanted == value);
    let wanted = |pipeline: &&Pipeline| {
        is("sha", &pipeline.sha)
            && is("ref", &pipeline.reference())
            && is("status", pipeline.status.name())
            && is("source", pipeline.source())
    };
    let mut views: Vec<Value> = {
        let world = app.world();
        world.pipelines.values().rev().filter(wanted).map(|pipeline| views::pipeline(app, pipeline)).collect()
    };
    if params.text("sort").as_deref() == Some("asc") {
        views.reverse();
    }
    Ok(paged(&call, &views))
}

fn shown(app: &App, id: u64) -> ApiResult<Value> {
    let world = app.world();
    let found = world.pipelines.get(&id).ok_or_else(|| ApiError::not_found(""))?;
    Ok(views::pipeline_detail(app, found))
}

/// `GET pipelines/:pid`
pub(crate) async fn get(call: Call) -> ApiResult {
    Ok(ok(shown(&call.app, call.id("pid")?)?))
}

/// `POST pipelines/:pid/cancel`; one that has ended stays as it is.
pub(crate) async fn cancel(call: Call) -> ApiResult {
    let id = call.id("pid")?;
    {
        let mut world = call.app.world();
        let active = world.pipelines.get(&id).map(|pipeline| pipeline.status.is_active());
        if active.ok_or_else(|| ApiError::not_found(""))? {
            call.app.enter(&mut world, id, Status::Canceled);
        }
    }
    Ok(ok(shown(&call.app, id)?))
}
