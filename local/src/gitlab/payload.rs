//! Bodies of webhooks.

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{
    app::App,
    merge_request::{MergeRequest, Person},
    pipeline::Pipeline,
    views,
    webhook::Action,
    world::World,
};

/// The second of GitLab's two date formats, of whole seconds.
fn plain(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    format!("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", at.year(), u8::from(at.month()), at.day(), at.hour(), at.minute(), at.second())
}

fn project(app: &App) -> Value {
    json!({
        "id": app.project.id,
        "name": views::project_name(app),
        "path_with_namespace": app.project.path,
        "default_branch": app.project.target_branch,
        "web_url": app.web_url(),
        "git_http_url": format!("{}.git", app.web_url()),
        "visibility_level": 0,
    })
}

fn person(who: &Person) -> Value {
    json!({ "id": who.id, "name": who.name, "username": who.username, "email": "[REDACTED]" })
}

pub(crate) fn merge_request(app: &App, world: &World, found: &MergeRequest, action: &Action, by: &Person) -> Value {
    let mut attributes = json!({
        "id": views::global_id(found.iid),
        "iid": found.iid,
        "title": found.title,
        "description": found.description,
        "state": found.state.name(),
        "state_id": found.state.number(),
        "action": action.name(),
        "source_branch": found.source_branch,
        "target_branch": found.target_branch,
        "source_project_id": app.project.id,
        "target_project_id": app.project.id,
        "author_id": found.author.id,
        "created_at": views::iso(found.created_at),
        "updated_at": plain(found.updated_at),
        "last_commit": { "id": found.head },
        "merge_status": found.merge_status(),
        "detailed_merge_status": world.detailed_status(found),
        "merge_commit_sha": found.merge_commit_sha,
        "merge_error": found.merge_error,
        "merge_when_pipeline_succeeds": found.auto_merge.is_some(),
        "head_pipeline_id": world.head_pipeline(found).map(|pipeline| pipeline.id),
        "draft": found.draft(),
        "work_in_progress": found.draft(),
        "url": views::merge_request_url(app, found.iid),
    });
    if let Action::Push { old } = action {
        attributes["oldrev"] = json!(old);
    }
    json!({
        "object_kind": "merge_request",
        "event_type": "merge_request",
        "user": person(by),
        "project": project(app),
        "object_attributes": attributes,
        "labels": [],
        "changes": {},
        "repository": { "name": views::project_name(app), "homepage": app.web_url() },
        "assignees": [],
        "reviewers": [],
    })
}

pub(crate) fn pipeline(app: &App, world: &World, pipeline: &Pipeline) -> Value {
    let found = world.merge_requests.values().find(|found| pipeline.is_for(found.iid));
    let merge_request = found.map(|found| {
        json!({
            "id": views::global_id(found.iid),
            "iid": found.iid,
            "title": found.title,
            "source_branch": found.source_branch,
            "target_branch": found.target_branch,
            "source_project_id": app.project.id,
            "target_project_id": app.project.id,
            "state": found.state.name(),
            "merge_status": found.merge_status(),
            "detailed_merge_status": world.detailed_status(found),
            "url": views::merge_request_url(app, found.iid),
        })
    });
    json!({
        "object_kind": "pipeline",
        "object_attributes": {
            "id": pipeline.id,
            "iid": pipeline.id - 1_000,
            "ref": found.map_or_else(|| pipeline.reference(), |found| found.source_branch.clone()),
            "tag": false,
            "sha": pipeline.sha,
            "source": pipeline.source(),
            "status": pipeline.status.name(),
            "detailed_status": if pipeline.status.name() == "success" { "passed" } else { pipeline.status.name() },
            "created_at": plain(pipeline.created_at),
            "finished_at": pipeline.finished_at.map(plain),
            "url": views::pipeline_url(app, pipeline.id),
        },
        "merge_request": merge_request,
        "user": person(&Person::bot()),
        "project": project(app),
        "commit": { "id": pipeline.sha },
        "builds": [],
    })
}
