//! I10: whatever an admission is refused for, the database is row for row what it was.

use muster_tests::probes::{At, Meddle, Pause};
use muster_tests::*;
use serde_json::json;
use shared::ids::OperationId;
use shared::request::Request;
use shared::state::{BindingStatus, FailCause};
use shared::transactions::admit::{Admit, AdmitOutcome};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::withdraw::WithdrawOutcome;

/// Runs the admission, which must answer this and change nothing.
async fn refused(world: &World, unit: Admit, outcome: AdmitOutcome) {
    let before = world.snapshot().await;
    assert_eq!(world.run(&unit).await, outcome);
    assert_eq!(world.snapshot().await, before);
    world.assert_invariants().await;
}

fn grant_until(expires_at: &str) -> Request {
    request(&json!({ "subject_id": "alice", "target_key": "db", "action": "grant", "expires_at": expires_at }))
}

#[tokio::test]
async fn a_key_that_was_used_for_another_body() {
    let world = World::new().await;
    let first = Admit { key: key("k"), ..admit(grant("alice", "db")) };
    assert!(matches!(world.run(&first).await, AdmitOutcome::Admitted(_)));
    for other in [grant("bob", "db"), grant("alice", "db2"), revoke("alice", "db"), grant_until("2999-01-01T00:00:00Z")] {
        refused(&world, Admit { key: key("k"), ..admit(other) }, AdmitOutcome::KeyReused { operation: first.operation.clone() }).await;
    }
}

#[tokio::test]
async fn a_grant_of_what_is_held_in_any_state_but_rejected_and_closed() {
    let world = World::new().await;
    let granted = world.admitted(grant("alice", "db")).await;
    let held = |status, operation: &OperationId| AdmitOutcome::BindingHeld { status: Some(status), operation: Some(operation.clone()) };
    refused(&world, admit(grant("alice", "db")), held(BindingStatus::Applying, &granted)).await;
    let batch = world.claimed("round-1").await;
    refused(&world, admit(grant("alice", "db")), held(BindingStatus::Applying, &granted)).await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    refused(&world, admit(grant("alice", "db")), held(BindingStatus::Active, &granted)).await;
    let revoked = world.admitted(revoke("alice", "db")).await;
    refused(&world, admit(grant("alice", "db")), held(BindingStatus::Revoking, &revoked)).await;
    let batch = world.claimed("round-2").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Content)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler-2")).await, SettleOutcome::Settled);
    refused(&world, admit(grant("alice", "db")), held(BindingStatus::Failed, &revoked)).await;
}

#[tokio::test]
async fn a_revoke_of_anything_that_is_not_active() {
    let world = World::new().await.with_target("db", "default", None).await;
    refused(&world, admit(revoke("alice", "db")), AdmitOutcome::BindingHeld { status: None, operation: None }).await;
    let held = |status, operation: &OperationId| AdmitOutcome::BindingHeld { status: Some(status), operation: Some(operation.clone()) };
    let granted = world.admitted(grant("alice", "db")).await;
    refused(&world, admit(revoke("alice", "db")), held(BindingStatus::Applying, &granted)).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    let revoked = world.admitted(revoke("alice", "db")).await;
    refused(&world, admit(revoke("alice", "db")), held(BindingStatus::Revoking, &revoked)).await;
    let batch = world.claimed("round-2").await;
    assert_eq!(world.run(&succeed(batch, "settler-2")).await, SettleOutcome::Settled);
    refused(&world, admit(revoke("alice", "db")), held(BindingStatus::Closed, &revoked)).await;
}

#[tokio::test]
async fn a_revoke_for_an_unknown_target_creates_no_target() {
    let world = World::new().await;
    refused(&world, admit(revoke("alice", "db")), AdmitOutcome::BindingHeld { status: None, operation: None }).await;
}

#[tokio::test]
async fn a_grant_without_a_seat() {
    let world = World::new().await.with_target("db", "default", Some(1)).await;
    world.admitted(grant("alice", "db")).await;
    refused(&world, admit(grant("bob", "db")), AdmitOutcome::SeatsExhausted { capacity: 1, used: 1 }).await;
    world.sql("UPDATE target SET capacity = 0", ()).await;
    refused(&world, admit(grant("bob", "db")), AdmitOutcome::SeatsExhausted { capacity: 0, used: 1 }).await;
}

#[tokio::test]
async fn a_seat_taken_for_a_grant_that_is_refused_later_is_given_back() {
    let world = World::new().await.with_target("db", "default", Some(5)).await;
    let granted = world.admitted(grant("alice", "db")).await;
    let held = AdmitOutcome::BindingHeld { status: Some(BindingStatus::Applying), operation: Some(granted) };
    refused(&world, admit(grant("alice", "db")), held).await;
    refused(&world, admit(grant_until("2001-01-01T00:00:00Z")), AdmitOutcome::ExpiresInThePast).await;
}

#[tokio::test]
async fn a_grant_of_a_closed_target() {
    for capacity in [None, Some(5)] {
        let world = World::new().await.with_target("db", "default", capacity).await;
        world.sql("UPDATE target SET closed_at = CURRENT_TIMESTAMP(6)", ()).await;
        refused(&world, admit(grant("alice", "db")), AdmitOutcome::TargetClosed).await;
    }
}

#[tokio::test]
async fn what_a_closed_target_holds_can_still_be_revoked() {
    let world = World::new().await;
    world.admitted(grant("alice", "db")).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    world.sql("UPDATE target SET closed_at = CURRENT_TIMESTAMP(6)", ()).await;
    world.admitted(revoke("alice", "db")).await;
    world.assert_invariants().await;
}

#[tokio::test]
async fn an_unknown_target_where_targets_are_strict() {
    let world = World::new().await;
    refused(&world, Admit { strict_targets: true, ..admit(grant("alice", "db")) }, AdmitOutcome::UnknownTarget).await;
}

#[tokio::test]
async fn anything_before_a_partition_is_set() {
    let world = World::empty().await;
    refused(&world, admit(grant("alice", "db")), AdmitOutcome::PartitionNotConfigured).await;
    let world = world.with_partition("team-a").await;
    refused(&world, admit(grant("alice", "db")), AdmitOutcome::PartitionNotConfigured).await;
}

#[tokio::test]
async fn a_closed_partition() {
    let world = World::new().await;
    world.sql("UPDATE merge_partition SET closed_at = CURRENT_TIMESTAMP(6)", ()).await;
    refused(&world, admit(grant("alice", "db")), AdmitOutcome::PartitionClosed { partition: partition_key("default") }).await;
}

#[tokio::test]
async fn an_expiry_that_has_passed_by_the_clock_of_the_database() {
    let world = World::new().await;
    let now: String = world.scalar("SELECT DATE_FORMAT(CURRENT_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')", ()).await;
    refused(&world, admit(grant_until(&now)), AdmitOutcome::ExpiresInThePast).await;
    refused(&world, admit(grant_until("1970-01-01T00:00:00Z")), AdmitOutcome::ExpiresInThePast).await;
    // The moment itself has passed: what expires at T is not granted at T.
    let frozen = world.store_with(|options| options.session = vec!["timestamp = 2000000000".to_owned()]);
    let at = frozen.run(&admit(grant_until("2033-05-18T03:33:20Z"))).await.expect("an outcome");
    assert_eq!(at, AdmitOutcome::ExpiresInThePast);
    let after = frozen.run(&admit(grant_until("2033-05-18T03:33:20.000001Z"))).await.expect("an outcome");
    assert!(matches!(after, AdmitOutcome::Admitted(_)), "{after:?}");
}

#[tokio::test]
async fn a_path_outside_the_allowed_prefixes_and_every_one_of_them_is_named() {
    let world = World::new().await;
    let files =
        json!([{ "path": "access/ok", "content": "" }, { "path": "deploy/prod", "content": "" }, { "path": "accessory/x", "content": "" }]);
    let unit = admit(request(&json!({ "subject_id": "alice", "target_key": "db", "action": "grant", "change": { "files": files } })));
    let problems =
        ["accessory/x", "deploy/prod"].map(|path| format!("path {path:?} lies outside the partition's allowed prefixes [\"access/\"]"));
    refused(&world, unit, AdmitOutcome::PathRefused { problems: problems.to_vec() }).await;
}

#[tokio::test]
async fn a_template_whose_file_would_lie_outside_the_allowed_prefixes() {
    let world = World::new().await;
    world.sql("UPDATE merge_partition SET path_template = '.gitlab/{target_key}/{subject_id}'", ()).await;
    let problems = vec!["path \".gitlab/db/alice\" has a component that begins with .git".to_owned()];
    refused(&world, admit(grant("alice", "db")), AdmitOutcome::PathRefused { problems }).await;
}

#[tokio::test]
async fn a_relationship_that_was_applied_for_since_it_was_read() {
    let world = World::new().await;
    let first = world.admitted(grant("alice", "db")).await;
    assert_eq!(world.run(&withdraw(&first)).await, WithdrawOutcome::Withdrawn);
    let pause = Pause::new("admit", At::Named("admit.insert_new_key"));
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&admit(grant("alice", "db"))).await });
    pause.reached().await;
    let winner = world.admitted(grant("alice", "db")).await;
    let before = world.snapshot().await;
    pause.release();
    // The reset pins the operation that was read, so it changed nothing; the rerun saw the winner.
    let held = AdmitOutcome::BindingHeld { status: Some(BindingStatus::Applying), operation: Some(winner) };
    assert_eq!(running.await.expect("no panic").expect("an outcome"), held);
    assert_eq!(world.snapshot().await, before);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_relationship_that_changes_in_every_rerun() {
    let world = World::new().await.with_target("db", "default", Some(1)).await;
    let first = world.admitted(grant("alice", "db")).await;
    assert_eq!(world.run(&withdraw(&first)).await, WithdrawOutcome::Withdrawn);
    let before = world.snapshot().await;
    let meddling = "UPDATE binding SET version = version + 1";
    let meddler = Meddle::new("admit", At::Named("admit.reset_read_binding"), world.session().await, meddling);
    let store = world.store_probed(meddler.clone());
    assert_eq!(store.run(&admit(grant("alice", "db"))).await.expect("an outcome"), AdmitOutcome::Preempted);
    assert_eq!(meddler.met(), 4, "the first run and three reruns");
    world.sql("UPDATE binding SET version = version - 4", ()).await;
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn a_key_whose_request_is_gone() {
    let world = World::new().await;
    let ghost = OperationId::new();
    world
        .sql(
            "INSERT INTO idempotency_record (principal, request_key, payload_hash, operation_id, expires_at) \
             VALUES (?, 'k', REPEAT('h', 32), ?, CURRENT_TIMESTAMP(6) + INTERVAL 7 DAY)",
            (REQUESTER, &ghost),
        )
        .await;
    let before = world.snapshot().await;
    assert_eq!(world.run(&Admit { key: key("k"), ..admit(grant("alice", "db")) }).await, AdmitOutcome::WinnerGone);
    assert_eq!(world.snapshot().await, before);
}
