//! All paths of the stand-in.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::DefaultBodyLimit,
    http::StatusCode,
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use serde_json::json;

use super::{
    admin, app::App, errors::ApiError, faults, graphql, routes_close, routes_commits as commits, routes_merge,
    routes_merge_requests as merge_requests, routes_pipelines as pipelines, routes_project as project, routes_repository as repository,
};

/// GitLab's limit on the body of a call.
const BODY_LIMIT: usize = 300 * 1024 * 1024;

pub(crate) fn router(app: Arc<App>) -> Router {
    let api = Router::new()
        .route("/version", get(project::version))
        .route("/user", get(project::user))
        .route("/personal_access_tokens/self", get(project::token))
        .nest("/projects/{id}", project_routes());
    Router::new()
        .nest("/api/v4", api)
        .route("/api/graphql", post(graphql::answer))
        .merge(admin::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), faults::intercept))
        .with_state(app)
}

fn project_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(project::project))
        .route("/protected_branches/{name}", get(project::protected_branch))
        .route("/hooks", get(project::hooks))
        .route("/hooks/{hid}", get(project::one_hook))
        .route("/repository/branches", get(repository::branches).post(repository::create_branch))
        .route("/repository/branches/{branch}", get(repository::branch).delete(repository::delete_branch))
        .route("/repository/commits", get(commits::list).post(commits::create))
        .route("/repository/commits/{sha}", get(commits::get))
        .route("/repository/commits/{sha}/refs", get(commits::refs))
        .route("/repository/merge_base", get(repository::merge_base))
        .route("/repository/compare", get(repository::compare))
        .route("/repository/tree", get(repository::tree))
        .route("/repository/files/{path}", get(repository::file))
        .route("/repository/files/{path}/raw", get(repository::raw_file))
        .route("/repository/blobs/{sha}", get(repository::blob))
        .route("/repository/blobs/{sha}/raw", get(repository::raw_blob))
        .route("/merge_requests", get(merge_requests::list).post(merge_requests::create))
        .route("/merge_requests/{iid}", get(merge_requests::get).put(routes_close::update))
        .route("/merge_requests/{iid}/merge", put(routes_merge::merge))
        .route("/merge_requests/{iid}/cancel_merge_when_pipeline_succeeds", post(routes_merge::cancel_auto_merge))
        .route("/merge_requests/{iid}/commits", get(merge_requests::commits))
        .route("/merge_requests/{iid}/approvals", get(merge_requests::approvals))
        .route("/merge_requests/{iid}/pipelines", get(pipelines::of_merge_request).post(pipelines::start))
        .route("/pipelines", get(pipelines::list))
        .route("/pipelines/{pid}", get(pipelines::get))
        .route("/pipelines/{pid}/cancel", post(pipelines::cancel))
}

async fn unknown() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({ "error": "404 Not Found" }))).into_response()
}

/// Grape's own 405, which is not the one of a merge.
async fn wrong_method() -> Response {
    ApiError { status: StatusCode::METHOD_NOT_ALLOWED, body: json!({ "error": "405 Not Allowed" }) }.into_response()
}
