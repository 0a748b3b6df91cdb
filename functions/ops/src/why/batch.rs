//! What a batch waits for.

use serde_json::json;
use shared::StoreError;
use shared::ids::BatchId;
use shared::outbox::kind;
use shared::read::why::{self, BatchFacts, PendingEffect};
use shared::store::Store;

use super::{Why, told};

/// `None`: there is no such batch.
pub async fn why(store: &Store, id: BatchId) -> Result<Option<Why>, StoreError> {
    let Some(facts) = why::batch(store, id).await? else { return Ok(None) };
    let pending = why::pending(store, id).await?;
    Ok(Some(explain(&facts, &pending).with_pending(&pending)))
}

pub(super) fn explain(batch: &BatchFacts, pending: &[PendingEffect]) -> Why {
    match batch.status.as_str() {
        "SUCCEEDED" => {
            let how = batch.code.as_deref().map_or(String::new(), |code| format!(" ({code})"));
            Why::ended(&batch.status, batch.settled_at.as_deref(), format!("batch {} has landed{how}", batch.batch_id))
        }
        "FAILED" => failed(batch),
        "RUNNING" | "BLOCKED" if batch.fail_code.is_some() => failing(batch, pending),
        "BLOCKED" => blocked(batch),
        _ if batch.mr_iid.is_none() => not_started(batch, pending),
        _ => underway(batch),
    }
}

fn failed(batch: &BatchFacts) -> Why {
    let mut reason = format!("batch {} has failed, {}", batch.batch_id, told(batch.code.as_deref(), batch.message.as_deref()));
    if let Some(at) = &batch.late_merged_at {
        reason += &format!("; at {at} it was found on the target branch all the same, and its members count as merged");
    }
    Why::ended(&batch.status, batch.settled_at.as_deref(), reason)
}

fn failing(batch: &BatchFacts, pending: &[PendingEffect]) -> Why {
    let why = told(batch.fail_code.as_deref(), batch.message.as_deref());
    let next = match pending.iter().find(|one| one.kind == kind::WITHDRAW_MERGE_REQUEST) {
        Some(effect) => format!(
            "its merge request is withdrawn (attempt {}, due at {}); then Git is asked, and it fails",
            effect.attempts + 1,
            effect.due_at
        ),
        None => {
            "the sweep asks the forge until the answer is final, then Git, and then it fails; on the target branch it succeeds. Where they \
                 contradict each other for good, an operator who has looked aborts or requeues it with \"confirm_not_merged\": true"
                .to_owned()
        }
    };
    let reason = format!("batch {} is to fail, {why}; it keeps the slot until that is final", batch.batch_id);
    Why::of(&batch.status, "failing", json!({ "forge": batch.mr_url }), batch.fail_at.as_deref(), reason, next)
}

fn blocked(batch: &BatchFacts) -> Why {
    let reason = format!("batch {} is blocked, {}", batch.batch_id, told(batch.code.as_deref(), batch.message.as_deref()));
    let next = "an operator decides: unblock lets it run on, requeue lets its members wait again, abort rejects them; \
                what is found on the target branch succeeds by itself";
    Why::of(&batch.status, "blocked", json!("an operator"), Some(&batch.updated_at), reason, next)
}

fn not_started(batch: &BatchFacts, pending: &[PendingEffect]) -> Why {
    let (state, holder) = match pending.iter().find(|one| one.kind == kind::OPEN_MERGE_REQUEST) {
        Some(PendingEffect { given_up_at: Some(at), last_error, .. }) => {
            (format!("opening it was given up at {at}: {}", last_error.as_deref().unwrap_or("no error was recorded")), json!("the sweep"))
        }
        Some(PendingEffect { last_error: Some(error), attempts, due_at, .. }) => {
            (format!("{attempts} attempts failed, the next is due at {due_at}: {error}"), json!("the forge"))
        }
        Some(effect) => (format!("it is to be opened from {} on", effect.due_at), json!("the relay")),
        None => ("nothing intends to open it any more".to_owned(), json!("the sweep")),
    };
    let reason = format!("batch {} has no merge request yet: {state}", batch.batch_id);
    let next = format!(
        "its merge request is opened; where that has not happened by {}, it fails and its members wait again",
        batch.not_started_until
    );
    Why::of(&batch.status, "not_started", holder, Some(&batch.created_at), reason, next)
}

fn underway(batch: &BatchFacts) -> Why {
    let iid = batch.mr_iid.as_deref().unwrap_or("?");
    let url = batch.mr_url.as_deref().unwrap_or("no address was recorded");
    let awaited = match batch.step.as_str() {
        "pipeline_manual" => "somebody starts the manual job of its pipeline",
        "pipeline_absent" => "the forge starts a pipeline, or merges without one",
        "pipeline_passed" => "the forge merges it",
        "merging" => "the forge ends the merge that is under way",
        "merged" | "closed" | "pipeline_failed" | "pipeline_canceled" | "pipeline_skipped" => "the next sweep settles it",
        _ => "its pipeline passes, and the forge merges it",
    };
    let reason = format!("batch {} is in step {} of merge request !{iid}, {url}", batch.batch_id, batch.step);
    let next = format!(
        "{awaited}; without a new step it fails at {}, and at {} in any case, and its members wait again",
        batch.no_progress_until, batch.total_until
    );
    Why::of(&batch.status, "merge_request_open", json!({ "forge": batch.mr_url }), Some(&batch.progress_at), reason, next)
}
