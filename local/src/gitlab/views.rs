//! JSON of the API's answers, with GitLab's field names.

use serde_json::{Map, Value, json};
use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description};

use super::{
    app::App,
    merge_request::{MergeRequest, Person},
    pipeline::Pipeline,
    world::World,
};

const ISO: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

pub(crate) fn iso(at: OffsetDateTime) -> String {
    at.to_offset(time::UtcOffset::UTC).format(ISO).unwrap_or_default()
}

/// Ids across all projects differ from the iid within one.
pub(crate) fn global_id(iid: u64) -> u64 {
    500_000 + iid
}

pub(crate) fn project_name(app: &App) -> &str {
    app.project.path.rsplit('/').next().unwrap_or_default()
}

pub(crate) fn merge_request_url(app: &App, iid: u64) -> String {
    format!("{}/-/merge_requests/{iid}", app.web_url())
}

pub(crate) fn pipeline_url(app: &App, id: u64) -> String {
    format!("{}/-/pipelines/{id}", app.web_url())
}

pub(crate) fn person(app: &App, who: &Person) -> Value {
    json!({
        "id": who.id,
        "username": who.username,
        "name": who.name,
        "state": "active",
        "locked": false,
        "avatar_url": null,
        "web_url": format!("{}/{}", app.url(), who.username),
    })
}

pub(crate) fn pipeline(app: &App, found: &Pipeline) -> Value {
    json!({
        "id": found.id,
        "iid": found.id - 1_000,
        "project_id": app.project.id,
        "sha": found.sha,
        "ref": found.reference(),
        "status": found.status.name(),
        "source": found.source(),
        "created_at": iso(found.created_at),
        "updated_at": iso(found.updated_at),
        "web_url": pipeline_url(app, found.id),
    })
}

pub(crate) fn pipeline_detail(app: &App, found: &Pipeline) -> Value {
    let mut view = pipeline(app, found);
    view["finished_at"] = json!(found.finished_at.map(iso));
    view["tag"] = json!(false);
    view["yaml_errors"] = Value::Null;
    view["user"] = person(app, &Person::bot());
    view["detailed_status"] = json!({ "text": found.status.name(), "label": found.status.name(), "group": found.status.name() });
    view
}

/// A merge request as the single GET shows it; lists show the same without pipeline, error and `diff_refs`.
pub(crate) fn merge_request(app: &App, world: &World, found: &MergeRequest, single: bool) -> Value {
    let mut view = identity(app, found);
    view.append(&mut progress(app, world, found));
    if single {
        view.append(&mut details(app, world, found));
    }
    Value::Object(view)
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn identity(app: &App, found: &MergeRequest) -> Map<String, Value> {
    fields(json!({
        "id": global_id(found.iid),
        "iid": found.iid,
        "project_id": app.project.id,
        "title": found.title,
        "description": found.description,
        "target_branch": found.target_branch,
        "source_branch": found.source_branch,
        "source_project_id": app.project.id,
        "target_project_id": app.project.id,
        "author": person(app, &found.author),
        "assignees": [],
        "assignee": null,
        "reviewers": [],
        "labels": found.labels,
        "draft": found.draft(),
        "work_in_progress": found.draft(),
        "milestone": null,
        "user_notes_count": 0,
        "discussion_locked": null,
        "reference": format!("!{}", found.iid),
        "references": { "short": format!("!{}", found.iid), "full": format!("{}!{}", app.project.path, found.iid) },
        "web_url": merge_request_url(app, found.iid),
    }))
}

fn progress(app: &App, world: &World, found: &MergeRequest) -> Map<String, Value> {
    let merged_by = found.merged.as_ref().map(|(_, who)| person(app, who));
    let armed_by = found.auto_merge.as_ref().map(|_| person(app, &Person::bot()));
    fields(json!({
        "state": found.state.name(),
        "created_at": iso(found.created_at),
        "updated_at": iso(found.updated_at),
        "prepared_at": found.prepared_at.map(iso),
        "merged_by": merged_by,
        "merge_user": merged_by.clone().or(armed_by),
        "merged_at": found.merged.as_ref().map(|(at, _)| iso(*at)),
        "closed_by": found.closed.as_ref().map(|(_, who)| person(app, who)),
        "closed_at": found.closed.as_ref().map(|(at, _)| iso(*at)),
        "merge_when_pipeline_succeeds": found.auto_merge.is_some(),
        "merge_status": found.merge_status(),
        "detailed_merge_status": world.detailed_status(found),
        "sha": found.prepared_at.map(|_| &found.head),
        "merge_commit_sha": found.merge_commit_sha,
        "squash_commit_sha": found.squash_commit_sha,
        "should_remove_source_branch": found.auto_merge.as_ref().map(|params| params.remove_source),
        "force_remove_source_branch": found.remove_source,
        "squash": found.squash,
        "squash_on_merge": found.squash,
        "has_conflicts": found.conflict(),
        "blocking_discussions_resolved": true,
    }))
}

fn details(app: &App, world: &World, found: &MergeRequest) -> Map<String, Value> {
    let pipeline = world.head_pipeline(found).filter(|_| found.prepared_at.is_some());
    fields(json!({
        "changes_count": found.changed_files.map(|count| count.to_string()),
        "head_pipeline": pipeline.map(|pipeline| pipeline_detail(app, pipeline)),
        "pipeline": pipeline.map(|pipeline| self::pipeline(app, pipeline)),
        "diff_refs": found.base.as_ref().map(|base| json!({ "base_sha": base, "head_sha": found.head, "start_sha": base })),
        "merge_error": found.merge_error,
        "rebase_in_progress": false,
        "user": { "can_merge": world.knobs.project.may_merge },
    }))
}
