//! `PUT merge_requests/:iid`: edits, closing and reopening.

use std::{sync::Arc, time::Duration};

use time::OffsetDateTime;

use super::{
    app::App,
    errors::{ApiError, ApiResult, ok},
    knobs::take,
    merge_request::{MergeRequest, MrState, Person},
    params::{Call, Params},
    routes_merge_requests::{find, refuse_second, view},
    webhook::Action,
};

/// `PUT merge_requests/:iid`
pub(crate) async fn update(call: Call) -> ApiResult {
    let Call { app, params, .. } = &call;
    let known = ["state_event", "title", "description", "labels", "target_branch", "squash", "remove_source_branch", "assignee_id"];
    if !known.iter().any(|name| params.0.contains_key(*name)) {
        return Err(ApiError::parameter(format!("{} are missing, at least one parameter must be provided", known.join(", "))));
    }
    let event = params.text("state_event");
    if event.as_deref().is_some_and(|event| event != "close" && event != "reopen") {
        return Err(ApiError::parameter("state_event does not have a valid value"));
    }
    let found = find(&call).await?;
    edit(app, params, found.iid).await?;
    match event.as_deref() {
        Some("close") => close(app, found.iid, &Person::bot()).await?,
        Some("reopen") => reopen(app, found.iid, &Person::bot()).await?,
        _ => {}
    }
    Ok(ok(view(app, found.iid)?))
}

async fn edit(app: &App, params: &Params, iid: u64) -> ApiResult<()> {
    let target = match params.filled("target_branch") {
        None => None,
        Some(name) => match app.repo.branch(&name).await? {
            Some(head) => Some((name, head)),
            None => return Err(ApiError::field("target_branch", "does not exist")),
        },
    };
    let mut world = app.world();
    let Some(found) = world.merge_requests.get_mut(&iid) else { return Ok(()) };
    let mut changed = false;
    for (name, field) in [("title", &mut found.title), ("description", &mut found.description)] {
        if let Some(text) = params.text(name).filter(|text| text != field) {
            *field = text;
            changed = true;
        }
    }
    if params.0.contains_key("labels") {
        found.labels = params.list("labels");
        changed = true;
    }
    if params.0.contains_key("squash") {
        found.squash = params.flag("squash");
    }
    if params.0.contains_key("remove_source_branch") {
        found.remove_source = params.flag("remove_source_branch");
    }
    if let Some((name, head)) = target.filter(|(name, _)| *name != found.target_branch) {
        found.target_branch = name;
        found.target_head = head;
        found.recheck();
        changed = true;
    }
    if changed {
        found.updated_at = OffsetDateTime::now_utc();
        app.announce(&mut world, iid, Action::Update, &Person::bot());
        app.wake.notify_one();
    }
    Ok(())
}

/// Closes an open merge request; leaves any other as it is, without a word, as GitLab does.
pub(crate) async fn close(app: &Arc<App>, iid: u64, by: &Person) -> ApiResult<()> {
    let (seen, race, after) = {
        let mut world = app.world();
        let Some(found) = world.merge_requests.get_mut(&iid).filter(|found| found.state == MrState::Opened) else {
            return Ok(());
        };
        let seen = found.clone();
        found.state = MrState::Closed;
        found.closed = Some((OffsetDateTime::now_utc(), by.clone()));
        found.updated_at = OffsetDateTime::now_utc();
        found.auto_merge = None;
        found.merge_error = None;
        app.announce(&mut world, iid, Action::Close, by);
        let race = take(&mut world.knobs.closed_yet_merged);
        (seen, race, Duration::from_millis(world.knobs.closed_yet_merged_after_ms))
    };
    app.wake.notify_one();
    if race && after.is_zero() {
        land_anyway(app, &seen).await?;
    } else if race {
        let app = Arc::clone(app);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            if let Err(error) = land_anyway(&app, &seen).await {
                tracing::error!(error = format!("{error:#}"), "the merge that was to win against a close failed");
            }
        });
    }
    Ok(())
}

/// The merge that was already running when the close came: on the target, while the merge request says closed for ever.
async fn land_anyway(app: &App, seen: &MergeRequest) -> anyhow::Result<()> {
    let _gate = app.gate.lock().await;
    let params = seen.auto_merge.clone().unwrap_or_default();
    app.land(seen, &params, &Person::bot()).await.map(drop)
}

/// Reopens a closed merge request whose source branch still exists; leaves any other as it is.
pub(crate) async fn reopen(app: &App, iid: u64, by: &Person) -> ApiResult<()> {
    let Some(seen) = app.world().merge_requests.get(&iid).filter(|found| found.state == MrState::Closed).cloned() else {
        return Ok(());
    };
    refuse_second(app, &seen.source_branch, &seen.target_branch, iid)?;
    if app.repo.branch(&seen.source_branch).await?.is_none() {
        return Ok(());
    }
    let mut world = app.world();
    if let Some(found) = world.merge_requests.get_mut(&iid) {
        found.state = MrState::Opened;
        found.closed = None;
        found.updated_at = OffsetDateTime::now_utc();
        found.recheck();
    }
    app.announce(&mut world, iid, Action::Reopen, by);
    app.wake.notify_one();
    Ok(())
}
