//! What a request waits for.

use serde_json::{Value, json};
use shared::StoreError;
use shared::decide::claim_set::Candidate;
use shared::ids::{BatchId, OperationId};
use shared::paths::PathSet;
use shared::read::plan::{Plan, plan};
use shared::read::why::{self, RequestFacts};
use shared::store::Store;

use super::{Why, batch, told};

/// `None`: there is no such request.
pub async fn why(store: &Store, operation: &OperationId) -> Result<Option<Why>, StoreError> {
    let Some(request) = why::request(store, operation).await? else { return Ok(None) };
    Ok(Some(match request.status.as_str() {
        "WAITING" => waiting(store, &request).await?,
        "IN_BATCH" => in_batch(store, &request).await?,
        "FAILED" => failed(&request),
        status => {
            let told = told(request.code.as_deref(), request.message.as_deref());
            let reason = if request.code.is_none() && request.message.is_none() { status.to_owned() } else { format!("{status}, {told}") };
            Why::ended(status, request.settled_at.as_deref(), format!("request {operation} is {reason}"))
        }
    }))
}

async fn in_batch(store: &Store, request: &RequestFacts) -> Result<Why, StoreError> {
    let Some(id) = request.batch_id else {
        return Err(StoreError::corrupt(format!("request {} is IN_BATCH and names no batch", request.operation_id)));
    };
    let Some(mut why) = batch::why(store, id).await? else {
        return Err(StoreError::corrupt(format!("the batch {id} of request {} does not exist", request.operation_id)));
    };
    why.status.clone_from(&request.status);
    why.holder = json!({ "batch_id": id });
    if let Some(at) = &request.withdraw_requested_at {
        why.next += &format!("; its requester took it back at {at}, so it does not wait again if the batch fails");
    }
    Ok(why)
}

fn failed(request: &RequestFacts) -> Why {
    let (id, told) = (&request.operation_id, told(request.code.as_deref(), request.message.as_deref()));
    let batch = request.batch_id.map_or(String::new(), |batch| format!(" in batch {batch}"));
    let reason = format!("request {id} failed{batch}, {told}");
    if let Some(at) = &request.withdraw_requested_at {
        let next = "the sweep closes it as soon as Git says that it is not on the target branch";
        return Why::of(&request.status, "closing", json!("the sweep"), Some(at), format!("{reason}; its requester took it back"), next);
    }
    let close = if request.action == "revoke" { "to closed leaves the access as it was" } else { "to closed gives its seat back" };
    let next = format!(
        "an operator recovers it: to waiting tries it again, {close} (only where it is not on the target branch), \
         to merged counts it as done (only where it is)"
    );
    Why::of(&request.status, "failed", json!("an operator"), Some(&request.updated_at), reason, next)
}

async fn waiting(store: &Store, request: &RequestFacts) -> Result<Why, StoreError> {
    let id = &request.operation_id;
    let Some(plan) = plan(store, &request.partition).await? else {
        return Err(StoreError::corrupt(format!("the partition {} of request {id} does not exist", request.partition)));
    };
    let say = |code, holder: Value, since: Option<&str>, reason: String, next: String| {
        Why::of(&request.status, code, holder, since, reason, next)
    };
    let since = Some(request.created_at.as_str());
    if request.is_expired == 1 {
        let at = request.expires_at.as_deref();
        let reason = format!("request {id} expired before a round took it");
        return Ok(say("expired", json!("the sweep"), at, reason, "the next sweep rejects it with the code expired".into()));
    }
    if let Some(pause) = plan.partition.pause.as_ref().filter(|pause| pause.holds) {
        let until = pause
            .until
            .as_ref()
            .map_or_else(|| "an operator resumes it".to_owned(), |until| format!("it ends at {until}, or an operator resumes it"));
        let reason = format!("the rounds of partition {} are paused by {}: {}", request.partition, pause.by, pause.reason);
        return Ok(say("paused", json!({ "paused_by": pause.by }), Some(&plan.partition.updated_at), reason, until));
    }
    if let Some(holder) = plan.holder {
        return occupied(store, request, holder).await;
    }
    if request.is_too_new == 1 {
        let reason = format!("request {id} was admitted in this very instant, and a round takes only what is older");
        return Ok(say("same_instant", json!("the clock"), since, reason, "the next round may take it".into()));
    }
    if plan.chosen.members.iter().any(|one| one.operation == *id) {
        return next_round(store, request, &plan).await;
    }
    Ok(passed_over(request, &plan))
}

async fn occupied(store: &Store, request: &RequestFacts, holder: BatchId) -> Result<Why, StoreError> {
    let Some(of_batch) = batch::why(store, holder).await? else {
        return Err(StoreError::corrupt(format!("the batch {holder} that holds the slot of {} does not exist", request.partition)));
    };
    let reason = format!("the slot of partition {} is held: {}", request.partition, of_batch.reason);
    let mut why =
        Why::of(&request.status, "slot_occupied", json!({ "batch_id": holder }), of_batch.since.as_deref(), reason, of_batch.next);
    why.pending = of_batch.pending;
    Ok(why)
}

async fn next_round(store: &Store, request: &RequestFacts, plan: &Plan) -> Result<Why, StoreError> {
    let limits = &plan.partition.settings.limits;
    let since = Some(request.created_at.as_str());
    let Some(oldest) = plan.chosen.members.iter().max_by_key(|one| one.waited_s).filter(|_| plan.is_held_back()) else {
        let closed = plan.partition.closed_at.as_ref().map_or(String::new(), |at| {
            format!("; the partition was closed at {at} while it was being admitted, and still lands what waits")
        });
        let reason = format!(
            "nothing holds request {}: the next round takes it with {} in all{closed}",
            request.operation_id,
            plan.chosen.members.len()
        );
        let next = "the schedule starts a round, or an operator invokes claim-round; if no round comes, look at the schedule";
        return Ok(Why::of(&request.status, "next_round", json!("the next round"), since, reason, next));
    };
    let at = why::has_waited_at(store, oldest.row, limits.max_wait_s).await?;
    let reason = format!(
        "{} of the {} requests that a round of partition {} waits for are there, and none has waited for {} s",
        plan.chosen.members.len(),
        limits.min_requests,
        request.partition,
        limits.max_wait_s
    );
    let next =
        format!("more requests come, or the round starts at {}; a manual claim-round starts it now", at.as_deref().unwrap_or("any moment"));
    Ok(Why::of(&request.status, "held_back", json!("min_requests"), since, reason, next))
}

/// It waits, nothing stops the round, and yet the round leaves it.
fn passed_over(request: &RequestFacts, plan: &Plan) -> Why {
    let (id, since) = (&request.operation_id, Some(request.created_at.as_str()));
    let say = |code, holder: Value, reason: String, next: &str| Why::of(&request.status, code, holder, since, reason, next);
    let Some(place) = plan.candidates.iter().position(|one| one.operation == *id) else {
        let reason = format!("more requests than a round looks at ({}) are before request {id}", plan.candidates.len());
        return say(
            "behind_others",
            json!("earlier requests"),
            reason,
            "the rounds before it land; a higher max_requests of the partition lets more go at once",
        );
    };
    if let Some((other, path)) = conflict(plan, place) {
        let reason = format!("request {id} touches {path:?}, which the earlier request {} touches too", other.operation);
        return say(
            "path_conflict",
            json!({ "operation_id": other.operation }),
            reason,
            "the earlier request ends; then a round may take this one",
        );
    }
    let own = plan.candidates[place].suspect;
    if own.map(|suspect| suspect.of) != plan.chosen.suspect_of {
        let reason = match own {
            Some(suspect) => format!("request {id} is a suspect of batch {}, and the next round is not one of these", suspect.of),
            None => "the next round takes suspects of a batch that failed by its content, and request and suspects take turns".to_owned(),
        };
        return say("other_turn", json!("the next round"), reason, "the next round lands; the one after it takes the others");
    }
    let limits = &plan.partition.settings.limits;
    let reason = format!(
        "the next round is full before request {id}: its place is {}, and a round takes {} requests and {} bytes",
        place + 1,
        limits.max_requests,
        limits.max_bytes
    );
    say("behind_others", json!("earlier requests"), reason, "the round before it lands; then it is its turn")
}

/// The first earlier request that touches a path of the one at `place`, and that path.
fn conflict(plan: &Plan, place: usize) -> Option<(&Candidate, &str)> {
    let own = plan.paths.get(&plan.candidates[place].operation)?;
    plan.candidates[..place].iter().find_map(|other| {
        let mut theirs = PathSet::default();
        plan.paths.get(&other.operation)?.iter().for_each(|path| theirs.insert(path));
        own.iter().find(|path| theirs.touches(path)).map(|path| (other, path.as_str()))
    })
}
