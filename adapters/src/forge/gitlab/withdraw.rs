//! Taking a merge request back. The order is the safest there is: cancel auto-merge, close, cancel the pipeline, re-read.
//!
//! Neither call has a precondition on GitLab's side, and a merge that already runs wins over our close. So the answer
//! is never that we succeeded, but what holds now; and Git, not this answer, says whether the work has landed.

use serde_json::json;

use super::GitLab;
use super::branches;
use super::client::Client;
use super::pipelines;
use super::route::of_project;
use crate::forge::{ForgeError, MrFacts, MrState, PipelineState, ProjectRef};

pub(super) async fn disarm(gitlab: &GitLab, project: &ProjectRef, iid: u64) -> Result<MrFacts, ForgeError> {
    let facts = gitlab.facts_of(project, iid).await?;
    if facts.state != MrState::Opened {
        return Ok(facts);
    }
    cancel_auto_merge(&gitlab.client, project, iid).await?;
    gitlab.facts_of(project, iid).await
}

pub(super) async fn withdraw(gitlab: &GitLab, project: &ProjectRef, iid: u64) -> Result<MrFacts, ForgeError> {
    let found = gitlab.must_read(project, iid).await?;
    // `locked`: its merge is in flight. Merged or closed: nothing is left to take back.
    if found.state() == MrState::Opened {
        cancel_auto_merge(&gitlab.client, project, iid).await?;
        close(&gitlab.client, project, iid).await?;
    }
    let now = gitlab.must_read(project, iid).await?;
    match &now.head_pipeline {
        Some(pipeline) if now.state() == MrState::Closed && now.pipeline() == PipelineState::Underway => {
            pipelines::cancel(&gitlab.client, project, pipeline.id).await;
            gitlab.facts_of(project, iid).await
        }
        _ => gitlab.facts(now).await,
    }
}

/// Answers 201 whether it did or not, and says so in the body. Not being armed is no trouble, and a refusal shows in
/// the re-read.
async fn cancel_auto_merge(client: &Client, project: &ProjectRef, iid: u64) -> Result<(), ForgeError> {
    let route = of_project(project, &format!("merge_requests/{iid}/cancel_merge_when_pipeline_succeeds"));
    let reply = client.post("cancel auto-merge", &route, &json!({})).await?;
    match reply.status {
        200..300 | 405 | 406 => Ok(()),
        404 => Err(branches::missing(&reply, project, &format!("merge request !{iid}"))),
        409 => Err(ForgeError::Busy { detail: reply.text() }),
        _ => Err(reply.unexpected()),
    }
}

/// 200 also where it was merged, locked or not ours to close.
async fn close(client: &Client, project: &ProjectRef, iid: u64) -> Result<(), ForgeError> {
    let route = of_project(project, &format!("merge_requests/{iid}"));
    let reply = client.put("close a merge request", &route, &json!({"state_event": "close"})).await?;
    match reply.status {
        200..300 => Ok(()),
        404 => Err(branches::missing(&reply, project, &format!("merge request !{iid}"))),
        409 => Err(ForgeError::Busy { detail: reply.text() }),
        _ => Err(reply.unexpected()),
    }
}
