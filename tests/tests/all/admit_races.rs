//! I4 and I5 under concurrency: whoever comes together gets one truth, and nobody an error.

use std::collections::BTreeMap;

use muster_tests::deadline::within;
use muster_tests::probes::{At, Pause};
use muster_tests::world::be_patient;
use muster_tests::*;
use shared::ids::OperationId;
use shared::request::Request;
use shared::state::{BindingStatus, OperationStatus};
use shared::transactions::admit::{Admission, Admit, AdmitOutcome};
use shared::transactions::batch_row::SettleOutcome;

/// Runs all admissions at once on 16 connections; every one must come to an outcome.
async fn at_once(world: &World, units: Vec<Admit>) -> Vec<AdmitOutcome> {
    let store = world.store_patient(16);
    let running: Vec<_> = units
        .into_iter()
        .map(|unit| {
            let store = store.clone();
            tokio::spawn(async move { store.run(&unit).await })
        })
        .collect();
    let mut outcomes = Vec::new();
    for one in running {
        outcomes.push(within("an admission", one).await.expect("no panic").expect("an outcome, not an error"));
    }
    outcomes
}

fn count_by_name(outcomes: &[AdmitOutcome]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome.name()).or_default() += 1;
    }
    counts
}

fn winner(outcomes: &[AdmitOutcome]) -> Admission {
    let admitted = outcomes.iter().find_map(|one| if let AdmitOutcome::Admitted(admission) = one { Some(admission.clone()) } else { None });
    admitted.expect("somebody was admitted")
}

fn each(count: usize, request: impl Fn(usize) -> Request) -> Vec<Admit> {
    (0..count).map(|number| admit(request(number))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_requests_with_one_key_one_is_admitted_and_63_are_told_so() {
    let world = World::new().await;
    let units = each(64, |_| grant("alice", "db")).into_iter().map(|unit| Admit { key: key("k"), ..unit }).collect();
    let outcomes = at_once(&world, units).await;
    let admission = winner(&outcomes);
    assert_eq!(admission.status, OperationStatus::Waiting);
    let replays = outcomes.iter().filter(|one| **one == AdmitOutcome::Replayed(admission.clone())).count();
    assert_eq!((count_by_name(&outcomes)["admitted"], replays), (1, 63), "{:?}", count_by_name(&outcomes));
    for table in ["operation", "merge_batch_request", "binding", "binding_history", "idempotency_record", "audit_record", "outbox"] {
        assert_eq!(world.count(table).await, 1, "{table}");
    }
    world.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_32_bodies_under_one_key_one_is_admitted_and_31_are_refused() {
    let world = World::new().await;
    let units =
        each(32, |number| grant(&format!("subject-{number}"), "db")).into_iter().map(|unit| Admit { key: key("k"), ..unit }).collect();
    let outcomes = at_once(&world, units).await;
    let reused = AdmitOutcome::KeyReused { operation: winner(&outcomes).operation };
    assert_eq!(outcomes.iter().filter(|one| **one == reused).count(), 31, "{outcomes:?}");
    assert_eq!(world.count("operation").await, 1);
    world.assert_invariants().await;
}

fn held(status: BindingStatus, by: &OperationId) -> AdmitOutcome {
    AdmitOutcome::BindingHeld { status: Some(status), operation: Some(by.clone()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_32_grants_of_one_relationship_one_holds_it() {
    let world = World::new().await;
    let outcomes = at_once(&world, each(32, |_| grant("alice", "db"))).await;
    let held = held(BindingStatus::Applying, &winner(&outcomes).operation);
    assert_eq!(outcomes.iter().filter(|one| **one == held).count(), 31, "{outcomes:?}");
    assert_eq!((world.count("binding").await, world.count("operation").await), (1, 1));
    world.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_32_grants_of_a_closed_relationship_one_resets_its_row() {
    let world = World::new().await;
    let first = world.admitted(grant("alice", "db")).await;
    let _ = world.run(&withdraw(&first)).await;
    let outcomes = at_once(&world, each(32, |_| grant("alice", "db"))).await;
    let held = held(BindingStatus::Applying, &winner(&outcomes).operation);
    assert_eq!(outcomes.iter().filter(|one| **one == held).count(), 31, "{outcomes:?}");
    assert_eq!((world.count("binding").await, world.count("operation").await), (1, 2));
    world.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_32_revokes_of_an_active_relationship_one_revokes_it() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    let outcomes = at_once(&world, each(32, |_| revoke("subject-1", "db"))).await;
    let held = held(BindingStatus::Revoking, &winner(&outcomes).operation);
    assert_eq!(outcomes.iter().filter(|one| **one == held).count(), 31, "{outcomes:?}");
    world.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_seat_among_32_goes_to_one() {
    let world = World::new().await.with_target("db", "default", Some(1)).await;
    let outcomes = at_once(&world, each(32, |number| grant(&format!("subject-{number}"), "db"))).await;
    assert_eq!(count_by_name(&outcomes), BTreeMap::from([("admitted", 1), ("seats_exhausted", 31)]));
    assert!(outcomes.contains(&AdmitOutcome::SeatsExhausted { capacity: 1, used: 1 }));
    assert_eq!(world.scalar::<u64>("SELECT used FROM target", ()).await, 1);
    world.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_seats_among_32_go_to_ten() {
    let world = World::new().await.with_target("db", "default", Some(10)).await;
    let outcomes = at_once(&world, each(32, |number| grant(&format!("subject-{number}"), "db"))).await;
    assert_eq!(count_by_name(&outcomes), BTreeMap::from([("admitted", 10), ("seats_exhausted", 22)]));
    world.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_target_is_created_once_by_32() {
    let world = World::new().await;
    let outcomes = at_once(&world, each(32, |number| grant(&format!("subject-{number}"), "db"))).await;
    assert_eq!(count_by_name(&outcomes), BTreeMap::from([("admitted", 32)]));
    assert_eq!(world.count("target").await, 1);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_request_that_is_sent_twice_is_never_told_that_it_stands_in_its_own_way() {
    // No target yet, one that is not counted, and one whose last seat the first of the two takes.
    for capacity in [None, Some(None), Some(Some(1))] {
        for n in 2.. {
            let mut world = World::new().await;
            if let Some(capacity) = capacity {
                world = world.with_target("db", "default", capacity).await;
            }
            let twice = [admit(grant("alice", "db")), admit(grant("alice", "db"))].map(|unit| Admit { key: key("k"), ..unit });
            let [first, second] = twice;
            let pause = Pause::new("admit", At::Statement(n));
            let stopped = world.store_with(|options| {
                be_patient(options);
                options.probe = Some(pause.clone());
            });
            let mut slow = tokio::spawn(async move { stopped.run(&first).await });
            let ended = tokio::select! {
                () = pause.reached() => false,
                _ = &mut slow => true,
            };
            if ended {
                assert!(n > 5, "an admission of {n} statements");
                break;
            }
            let patient = world.store_patient(1);
            let mut fast = tokio::spawn(async move { patient.run(&second).await });
            // It may have to wait for what the slow one holds; then it goes on after it.
            let answered = tokio::select! {
                outcome = &mut fast => Some(outcome),
                () = world.until_somebody_waits_for_a_lock() => None,
            };
            pause.release();
            let slow = slow.await.expect("no panic").expect("an outcome");
            let fast = match answered {
                Some(outcome) => outcome,
                None => fast.await,
            };
            let outcomes = [slow, fast.expect("no panic").expect("an outcome")];
            let replayed = AdmitOutcome::Replayed(winner(&outcomes));
            assert!(outcomes.contains(&replayed), "{capacity:?}, stopped before statement {n}: {outcomes:?}");
            world.assert_invariants().await;
        }
    }
}
