//! The instance, the user, the project and its settings: what a preflight reads.

use serde_json::{Value, json};

use super::{
    errors::{ApiError, ApiResult, ok},
    knobs::HookStatus,
    merge_request::Person,
    params::Call,
    views,
};

/// `GET /version`
pub(crate) async fn version(_call: Call) -> ApiResult {
    Ok(ok(json!({ "version": "19.4.1-ee", "revision": "0f5e2a9c1d4" })))
}

/// `GET /user`
pub(crate) async fn user(call: Call) -> ApiResult {
    let mut view = views::person(&call.app, &Person::bot());
    view["email"] = json!(Person::bot().signature().email);
    view["bot"] = json!(true);
    view["is_admin"] = json!(false);
    Ok(ok(view))
}

/// `GET /personal_access_tokens/self`
pub(crate) async fn token(call: Call) -> ApiResult {
    let settings = call.app.world().knobs.project.clone();
    Ok(ok(json!({
        "id": 7,
        "name": "muster",
        "revoked": false,
        "active": true,
        "scopes": settings.token_scopes,
        "user_id": Person::bot().id,
        "created_at": "2026-01-01T00:00:00.000Z",
        "last_used_at": null,
        "expires_at": settings.token_expires_at,
    })))
}

/// `GET /projects/:id`
pub(crate) async fn project(call: Call) -> ApiResult {
    let app = &call.app;
    let settings = app.world().knobs.project.clone();
    let group = app.project.path.rsplit_once('/').map_or("", |(group, _)| group);
    Ok(ok(json!({
        "id": app.project.id,
        "name": views::project_name(app),
        "path": views::project_name(app),
        "path_with_namespace": app.project.path,
        "namespace": { "id": 1, "name": group, "path": group, "kind": "group", "full_path": group },
        "default_branch": app.project.target_branch,
        "visibility": "private",
        "archived": settings.archived,
        "empty_repo": false,
        "web_url": app.web_url(),
        "http_url_to_repo": format!("{}.git", app.web_url()),
        "ssh_url_to_repo": format!("git@127.0.0.1:{}.git", app.project.path),
        "merge_method": settings.merge_method,
        "squash_option": settings.squash_option,
        "merge_requests_enabled": true,
        "merge_requests_access_level": "enabled",
        "repository_access_level": "enabled",
        "builds_access_level": "enabled",
        "jobs_enabled": true,
        "only_allow_merge_if_pipeline_succeeds": settings.pipelines_must_succeed,
        "only_allow_merge_if_all_discussions_are_resolved": false,
        "allow_merge_on_skipped_pipeline": settings.skipped_counts,
        "merge_pipelines_enabled": false,
        "merge_trains_enabled": false,
        "remove_source_branch_after_merge": false,
        "merge_commit_template": null,
        "squash_commit_template": null,
        "permissions": {
            "project_access": { "access_level": if settings.may_merge { 40 } else { 30 }, "notification_level": 3 },
            "group_access": null,
        },
    })))
}

/// `GET protected_branches/:name`
pub(crate) async fn protected_branch(call: Call) -> ApiResult {
    let name = call.path("name")?;
    if name != call.app.project.target_branch || !call.app.world().knobs.project.target_protected {
        return Err(ApiError::not_found(""));
    }
    let maintainers =
        json!([{ "id": 1, "access_level": 40, "access_level_description": "Maintainers", "user_id": null, "group_id": null }]);
    Ok(ok(json!({
        "id": 1,
        "name": name,
        "push_access_levels": maintainers,
        "merge_access_levels": maintainers,
        "allow_force_push": false,
        "code_owner_approval_required": false,
    })))
}

fn hook(call: &Call) -> Option<Value> {
    let (hook, status) = {
        let world = call.app.world();
        (world.webhook.clone()?, world.knobs.webhook_status)
    };
    Some(json!({
        "id": 1,
        "url": hook.url,
        "project_id": call.app.project.id,
        "push_events": false,
        "merge_requests_events": true,
        "pipeline_events": true,
        "enable_ssl_verification": true,
        "alert_status": status,
        "disabled_until": if status == HookStatus::TemporarilyDisabled { json!("2099-01-01T00:00:00.000Z") } else { Value::Null },
        "created_at": "2026-01-01T00:00:00.000Z",
    }))
}

/// `GET hooks`
pub(crate) async fn hooks(call: Call) -> ApiResult {
    let hooks: Vec<Value> = hook(&call).into_iter().collect();
    Ok(super::paging::paged(&call, &hooks))
}

/// `GET hooks/:hid`
pub(crate) async fn one_hook(call: Call) -> ApiResult {
    match hook(&call) {
        Some(found) if call.id("hid")? == 1 => Ok(ok(found)),
        _ => Err(ApiError::not_found("")),
    }
}
