//! recover: a FAILED request waits again, is closed, or counts as merged.

use local::gitlab::MrState;
use muster_tests::deadline::until;
use muster_tests::journey::Journey;
use muster_tests::proxy::Cut;
use muster_tests::{World, begin_fail, claim, fail, grant, principal, revoke, succeed, withdraw};
use serde_json::{Value, json};
use shared::ids::{BatchId, OperationId};
use shared::state::FailCause;
use shared::transactions::claim::ClaimOutcome;
use shared::transactions::recover::{Recover, RecoverOutcome, RecoverTo};
use shared::transactions::withdraw::WithdrawOutcome;

use super::{already, order_by, refused, rehearsed_then_done};

async fn convict(world: &World, batch: BatchId) {
    let _ = world.run(&begin_fail(batch, FailCause::Content)).await;
    let _ = world.run(&fail(batch, "settler")).await;
}

/// A grant that its own pipeline convicted, in a batch that was never rendered.
async fn failed_grant(world: &World) -> OperationId {
    let operation = world.admitted(grant("alice", "db")).await;
    convict(world, world.claimed("token-f").await).await;
    operation
}

/// A revoke that failed, of an access that stands.
async fn failed_revoke(world: &World) -> OperationId {
    world.admitted(grant("alice", "db")).await;
    let _ = world.run(&succeed(world.claimed("token-g").await, "settler")).await;
    let operation = world.admitted(revoke("alice", "db")).await;
    convict(world, world.claimed("token-r").await).await;
    operation
}

fn to(operation: &OperationId, to: &str) -> Value {
    json!({ "operation_id": operation, "to": to })
}

async fn counted() -> Journey {
    Journey::with_world(World::new().await.with_target("db", "default", Some(1)).await).await
}

async fn used(journey: &Journey) -> u64 {
    journey.world.scalar("SELECT used FROM target WHERE target_key = 'db'", ()).await
}

#[tokio::test]
async fn a_failed_grant_waits_again_at_its_old_place_as_if_never_tried() {
    let journey = counted().await;
    let operation = failed_grant(&journey.world).await;
    journey.world.sql("UPDATE merge_batch_request SET content_attempts = 3, infra_attempts = 2, suspect_of = 1, peer_limit = 1", ()).await;
    let place = "SELECT CONCAT(id, ' ', created_at, ' ', rank_at) FROM merge_batch_request";
    let before: String = journey.world.scalar(place, ()).await;
    let done = rehearsed_then_done(&journey, "recover", to(&operation, "waiting")).await;
    assert_eq!((&done["before"]["status"], &done["after"]["status"]), (&json!("FAILED"), &json!("WAITING")), "{done}");
    assert_eq!(done["after"]["code"], Value::Null, "{done}");
    assert_eq!(journey.world.scalar::<String>(place, ()).await, before);
    let clean = "merge_batch_request WHERE batch_id IS NULL AND content_attempts = 0 AND infra_attempts = 0 AND suspect_of IS NULL AND peer_limit IS NULL";
    assert_eq!(journey.world.count(clean).await, 1);
    assert_eq!((journey.binding_of("alice", "db").await.as_str(), used(&journey).await), ("APPLYING", 1));
    already(&journey, "recover", to(&operation, "waiting")).await;
    journey.world.assert_invariants().await;
    assert!(matches!(journey.world.run(&claim("again")).await, ClaimOutcome::Claimed { members, .. } if members == [operation.clone()]));
    refused(&journey, "recover", to(&operation, "waiting"), "is IN_BATCH").await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_failed_revoke_waits_again_or_leaves_the_access_as_it_was() {
    for (wish, status, binding) in [("waiting", "WAITING", "REVOKING"), ("closed", "CLOSED", "ACTIVE")] {
        let journey = counted().await;
        let operation = failed_revoke(&journey.world).await;
        journey.world.sql("UPDATE binding SET expiry_rejections = 3", ()).await;
        rehearsed_then_done(&journey, "recover", to(&operation, wish)).await;
        assert_eq!((journey.status_of(&operation).await.as_str(), journey.binding_of("alice", "db").await.as_str()), (status, binding));
        assert_eq!((used(&journey).await, journey.world.count("binding WHERE expiry_rejections = 0").await), (1, 1));
        already(&journey, "recover", to(&operation, wish)).await;
        journey.world.assert_invariants().await;
    }
}

#[tokio::test]
async fn a_grant_that_is_not_on_the_target_branch_is_closed_and_gives_its_seat_back() {
    let journey = counted().await;
    let operation = failed_grant(&journey.world).await;
    refused(&journey, "recover", to(&operation, "merged"), "no commit of request").await;
    let done = rehearsed_then_done(&journey, "recover", to(&operation, "closed")).await;
    assert_eq!(done["after"]["status"], "CLOSED", "{done}");
    assert_eq!((journey.binding_of("alice", "db").await.as_str(), used(&journey).await), ("CLOSED", 0));
    assert_eq!(journey.world.count("merge_batch_request").await, 0);
    assert_eq!(journey.world.count("outbox WHERE dedup_key LIKE 'request.withdrawn:%'").await, 1);
    already(&journey, "recover", to(&operation, "closed")).await;
    refused(&journey, "recover", to(&operation, "waiting"), "is CLOSED").await;
    journey.world.admitted(grant("alice", "db")).await;
    journey.world.assert_invariants().await;
}

/// A request that was convicted although the forge has merged it.
async fn convicted_yet_merged(journey: &Journey) {
    let batch = journey.claimed().await;
    until("the merge", async || {
        let last = journey.forge.merge_requests().last().map(|one| one.state == MrState::Merged);
        (last == Some(true)).then_some(())
    })
    .await;
    convict(&journey.world, batch).await;
}

#[tokio::test]
async fn what_is_on_the_target_branch_counts_as_merged_and_is_never_closed() {
    let journey = counted().await;
    let granted = journey.world.admitted(grant("alice", "db")).await;
    convicted_yet_merged(&journey).await;
    refused(&journey, "recover", to(&granted, "closed"), "is on the target branch by commit").await;
    let done = rehearsed_then_done(&journey, "recover", to(&granted, "merged")).await;
    assert_eq!((&done["after"]["status"], &done["after"]["code"]), (&json!("MERGED"), &json!("recovered")), "{done}");
    assert_eq!((journey.binding_of("alice", "db").await.as_str(), used(&journey).await), ("ACTIVE", 1));
    already(&journey, "recover", to(&granted, "merged")).await;
    journey.world.assert_invariants().await;
    let taken_back = journey.world.admitted(revoke("alice", "db")).await;
    convicted_yet_merged(&journey).await;
    refused(&journey, "recover", to(&taken_back, "closed"), "is on the target branch by commit").await;
    rehearsed_then_done(&journey, "recover", to(&taken_back, "merged")).await;
    assert_eq!((journey.binding_of("alice", "db").await.as_str(), used(&journey).await), ("CLOSED", 0));
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn without_an_answer_of_the_forge_nothing_is_closed() {
    let journey = Journey::new().await;
    let operation = journey.world.admitted(grant("alice", "db")).await;
    convicted_yet_merged(&journey).await;
    let before = journey.world.snapshot().await;
    for wish in ["closed", "merged"] {
        let answer = order_by(&super::batches::silent(&journey), "recover", to(&operation, wish)).await;
        assert_eq!(answer["outcome"], "refused", "{answer}");
        assert!(answer["reason"].as_str().expect("a reason").contains("is not known"), "{answer}");
    }
    assert_eq!(journey.world.snapshot().await, before);
}

#[tokio::test]
async fn what_its_requester_took_back_or_a_closed_partition_holds_does_not_wait_again() {
    let journey = Journey::new().await;
    let operation = failed_grant(&journey.world).await;
    journey.world.sql("UPDATE merge_partition SET closed_at = CURRENT_TIMESTAMP(6)", ()).await;
    refused(&journey, "recover", to(&operation, "waiting"), "is closed; open it").await;
    journey.world.sql("UPDATE merge_partition SET closed_at = NULL", ()).await;
    assert!(matches!(journey.world.run(&withdraw(&operation)).await, WithdrawOutcome::Noted { .. }));
    refused(&journey, "recover", to(&operation, "waiting"), "was taken back by its requester").await;
    rehearsed_then_done(&journey, "recover", to(&operation, "closed")).await;
    let unknown = OperationId::new();
    refused(&journey, "recover", to(&unknown, "closed"), "there is no request").await;
    refused(&journey, "recover", to(&unknown, "elsewhere"), "waiting, closed or merged").await;
    refused(&journey, "recover", json!({ "operation_id": unknown }), "to is missing").await;
    journey.world.assert_invariants().await;
}

fn recover(operation: &OperationId, version: u64) -> Recover {
    Recover { operation: operation.clone(), version, to: RecoverTo::Closed, actor: principal("operator") }
}

#[tokio::test]
async fn a_verdict_of_git_counts_for_the_version_it_was_asked_for_and_one_of_many_recovers() {
    let world = World::new().await;
    let operation = failed_grant(&world).await;
    let version: u64 = world.scalar("SELECT version FROM operation", ()).await;
    let before = world.snapshot().await;
    assert_eq!(world.run(&recover(&operation, version - 1)).await, RecoverOutcome::Preempted);
    assert_eq!(world.snapshot().await, before);
    let store = world.store_with(|options| options.connections = 4);
    let mut closing = Vec::new();
    for _ in 0..8 {
        let (store, unit) = (store.clone(), recover(&operation, version));
        closing.push(tokio::spawn(async move { store.run(&unit).await.expect("an outcome") }));
    }
    let mut recovered = 0;
    for one in closing {
        recovered += u32::from(one.await.expect("no panic") == RecoverOutcome::Recovered);
    }
    assert_eq!(recovered, 1);
}

#[tokio::test]
async fn an_order_whose_commit_went_unanswered_is_found_done() {
    for cut in [Cut::BeforeServer, Cut::AfterServer] {
        let journey = Journey::new().await;
        let operation = failed_grant(&journey.world).await;
        let (store, proxy) = journey.world.store_behind(cut, 1).await;
        let relay = adapters::relay::Relay { store, ..journey.runner(|_| {}) };
        let answer = order_by(&relay, "recover", to(&operation, "waiting")).await;
        assert_eq!((&answer["outcome"], &answer["after"]["status"]), (&json!("done"), &json!("WAITING")), "{cut:?}: {answer}");
        assert_eq!((proxy.left(), journey.world.count("audit_record WHERE action = 'recover'").await), (0, 1));
        journey.world.assert_invariants().await;
    }
}
