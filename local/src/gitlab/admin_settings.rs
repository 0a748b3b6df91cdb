//! `/_standin/{faults,knobs,chaos,scenario,calls}`: how the forge behaves from now on.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Map, Value, json};

use super::{
    admin::parse,
    app::App,
    chaos::Chaos,
    errors::{ApiError, ApiResult, created, ok},
    faults::Fault,
    scenario::Scenario,
};

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/_standin/faults", get(faults).post(add_fault).delete(clear_faults))
        .route("/_standin/knobs", get(knobs).patch(set_knobs))
        .route("/_standin/chaos", get(chaos).put(set_chaos))
        .route("/_standin/scenario", post(set_scenario))
        .route("/_standin/calls", get(calls).delete(clear_calls))
}

async fn faults(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!(app.world().faults))
}

async fn add_fault(State(app): State<Arc<App>>, body: Bytes) -> ApiResult {
    let fault: Fault = parse(&body)?;
    app.world().faults.push(fault.clone());
    Ok(created(json!(fault)))
}

async fn clear_faults(State(app): State<Arc<App>>) -> Response {
    app.world().faults.clear();
    StatusCode::NO_CONTENT.into_response()
}

async fn knobs(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!(app.world().knobs))
}

/// `PATCH knobs`: changes the knobs that are given, leaves the others.
async fn set_knobs(State(app): State<Arc<App>>, body: Bytes) -> ApiResult {
    let changes: Map<String, Value> = parse(&body)?;
    let mut world = app.world();
    world.change_knobs(changes).map_err(|error| ApiError::bad(format!("no such setting: {error:#}")))?;
    app.wake.notify_one();
    Ok(ok(json!(world.knobs)))
}

async fn chaos(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!(app.world().chaos))
}

/// `PUT chaos`: the numbers are drawn from the start again.
async fn set_chaos(State(app): State<Arc<App>>, body: Bytes) -> ApiResult {
    let chaos: Chaos = parse(&body)?;
    chaos.check().map_err(ApiError::bad)?;
    app.world().chaos = chaos.clone();
    Ok(ok(json!(chaos)))
}

async fn set_scenario(State(app): State<Arc<App>>, body: Bytes) -> ApiResult {
    let scenario: Scenario = parse(&body)?;
    let people = app.set_stage(scenario).map_err(|error| ApiError::bad(format!("{error:#}")))?;
    let count = people.len();
    tokio::spawn(Arc::clone(&app).play(people, app.client.clone()));
    Ok(created(json!({ "people": count })))
}

async fn calls(State(app): State<Arc<App>>) -> Json<Value> {
    let world = app.world();
    let list: Vec<Value> =
        world.calls.iter().map(|(method, path, status)| json!({ "method": method, "path": path, "status": status })).collect();
    Json(json!({ "count": list.len(), "calls": list }))
}

async fn clear_calls(State(app): State<Arc<App>>) -> Response {
    app.world().calls.clear();
    StatusCode::NO_CONTENT.into_response()
}
