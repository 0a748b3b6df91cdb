//! A target that changes while seats of it are taken and given back: its capacity, its partition, its closing.

use muster_tests::probes::{At, Meddle, Pause};
use muster_tests::*;
use shared::state::FailCause;
use shared::transactions::admit::AdmitOutcome;
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::command::{Command, CommandOutcome};
use shared::transactions::set_target::SetTarget;
use shared::{Guarded, Store};

/// Seats are counted from now on.
fn count_seats(capacity: u64) -> SetTarget {
    let command = Command::new("set_target", principal(OPERATOR), "licences are short", false);
    SetTarget { target: target("db"), partition: None, capacity: Some(Some(capacity)), closed: None, command }
}

async fn seats(world: &World) -> String {
    world.scalar("SELECT CONCAT_WS(' ', IFNULL(capacity, '-'), used) FROM target WHERE target_key = 'db'", ()).await
}

/// Holds the unit before its COMMIT while a capacity is set, which must wait for it.
async fn capacity_set_meanwhile<G: Guarded + Send + 'static>(world: &World, unit: G) -> G::Outcome
where
    G::Outcome: 'static,
{
    let pause = Pause::new(G::NAME, At::BeforeCommit);
    let stopped: Store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { stopped.run(&unit).await });
    pause.reached().await;
    let patient = world.store_patient(1);
    let setting = tokio::spawn(async move { patient.run(&count_seats(5)).await });
    world.until_somebody_waits_for_a_lock().await;
    pause.release();
    let outcome = running.await.expect("no panic").expect("an outcome");
    let set = setting.await.expect("no panic").expect("an outcome");
    assert!(matches!(set, CommandOutcome::Done { .. }), "{set:?}");
    world.assert_invariants().await;
    outcome
}

#[tokio::test]
async fn a_capacity_that_is_set_during_an_admission_counts_it() {
    let world = World::new().await.with_target("db", "default", None).await;
    let outcome = capacity_set_meanwhile(&world, admit(grant("alice", "db"))).await;
    assert!(matches!(outcome, AdmitOutcome::Admitted(_)), "{outcome:?}");
    assert_eq!(seats(&world).await, "5 1");
}

#[tokio::test]
async fn a_capacity_that_is_set_during_a_settlement_does_not_count_what_it_gives_back() {
    let world = World::with_waiting(2).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    assert_eq!(capacity_set_meanwhile(&world, fail(batch, "settler-1")).await, SettleOutcome::Settled);
    assert_eq!(seats(&world).await, "5 0");
}

#[tokio::test]
async fn a_capacity_that_is_set_during_a_withdrawal_does_not_count_what_it_gives_back() {
    let world = World::with_waiting(2).await;
    let outcome = capacity_set_meanwhile(&world, withdraw(&world.waiting[0])).await;
    assert_eq!(outcome, shared::transactions::withdraw::WithdrawOutcome::Withdrawn);
    assert_eq!(seats(&world).await, "5 1");
}

#[tokio::test]
async fn a_capacity_that_is_taken_away_during_a_settlement_leaves_the_count_as_it_was() {
    let world = World::new().await.with_target("db", "default", Some(5)).await;
    world.admitted(grant("alice", "db")).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    let uncounting = "UPDATE target SET capacity = NULL, version = version + 1 WHERE capacity IS NOT NULL";
    let meddler = Meddle::new("fail", At::Named("seats.move_seats_of_counted_target"), world.session().await, uncounting);
    let outcome = world.store_probed(meddler.clone()).run(&fail(batch, "settler-1")).await.expect("an outcome");
    assert_eq!((outcome, meddler.met()), (SettleOutcome::Settled, 1));
    assert_eq!(seats(&world).await, "- 1");
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_target_that_moves_to_another_partition_meanwhile_takes_the_request_along() {
    for (capacity, statement) in [(Some(5), "admit.take_free_seat"), (None, "admit.pin_target")] {
        let world = World::new().await.with_partition("team-a").await.with_target("db", "default", capacity).await;
        let moving = "UPDATE target SET partition_key = 'team-a', version = version + 1";
        let meddler = Meddle::new("admit", At::Named(statement), world.session().await, moving);
        let unit = admit(grant("alice", "db"));
        let outcome = world.store_probed(meddler).run(&unit).await.expect("an outcome");
        assert!(matches!(outcome, AdmitOutcome::Admitted(_)), "{outcome:?}");
        assert_eq!(world.scalar::<String>("SELECT partition_key FROM operation", ()).await, "team-a", "{statement}");
        world.assert_invariants().await;
    }
}

#[tokio::test]
async fn a_target_that_is_closed_meanwhile_takes_no_grant() {
    let world = World::new().await.with_target("db", "default", Some(5)).await;
    let closing = "UPDATE target SET closed_at = CURRENT_TIMESTAMP(6), version = version + 1";
    let meddler = Meddle::new("admit", At::Named("admit.take_free_seat"), world.session().await, closing);
    let outcome = world.store_probed(meddler).run(&admit(grant("alice", "db"))).await.expect("an outcome");
    assert_eq!(outcome, AdmitOutcome::TargetClosed);
    assert_eq!(world.count("operation").await, 0);
}

#[tokio::test]
async fn a_relationship_that_another_revokes_meanwhile_is_revoked_once() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    let pause = Pause::new("admit", At::Named("admit.revoke_active_binding"));
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&admit(revoke("subject-1", "db"))).await });
    pause.reached().await;
    let winner = world.admitted(revoke("subject-1", "db")).await;
    let before = world.snapshot().await;
    pause.release();
    let held = AdmitOutcome::BindingHeld { status: Some(shared::state::BindingStatus::Revoking), operation: Some(winner) };
    assert_eq!(running.await.expect("no panic").expect("an outcome"), held);
    assert_eq!(world.snapshot().await, before);
}
