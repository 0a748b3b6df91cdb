//! A connection that breaks during COMMIT: the unit answers truly all the same, and its effects are wished for once.
//!
//! The network in between is real: it cuts the connection either before COMMIT arrives, or after it was carried out.

use muster_tests::proxy::Cut;
use muster_tests::*;
use shared::ids::BatchId;
use shared::state::FailCause;
use shared::transactions::admit::AdmitOutcome;
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::ClaimOutcome;
use shared::transactions::deliveries::{Fate, LeaseDeliveries, LeaseToken, RecordDeliveries, Scope};
use shared::transactions::record_merge_request::RecordMergeRequestOutcome;
use shared::transactions::record_render::RecordRenderOutcome;
use shared::transactions::withdraw::WithdrawOutcome;
use shared::{Guarded, StoreError};

const CUTS: [Cut; 2] = [Cut::BeforeServer, Cut::AfterServer];

/// Runs a unit whose first COMMIT is lost.
async fn cut_once<G: Guarded>(world: &World, cut: Cut, unit: &G) -> G::Outcome {
    let (store, proxy) = world.store_behind(cut, 1).await;
    let outcome = store.run(unit).await.unwrap_or_else(|error| panic!("{cut:?}: {} came to no outcome: {error:?}", G::NAME));
    assert_eq!(proxy.left(), 0, "{cut:?}: no COMMIT of {} was lost", G::NAME);
    outcome
}

async fn batch(world: &World) -> BatchId {
    world.claimed("round-1").await
}

/// The batch's effects are those of a run without a fault.
async fn assert_effects(world: &World, batch: BatchId, effects: &[&str]) {
    assert_eq!(world.effects_of(batch).await, effects);
    world.assert_invariants().await;
}

#[tokio::test]
async fn an_admission_tells_that_it_was_admitted_and_not_that_it_is_a_replay() {
    for cut in CUTS {
        let world = World::new().await.with_target("db", "default", Some(1)).await;
        let unit = admit(grant("alice", "db"));
        let outcome = cut_once(&world, cut, &unit).await;
        assert!(matches!(&outcome, AdmitOutcome::Admitted(admission) if admission.operation == unit.operation), "{cut:?}: {outcome:?}");
        for table in ["operation", "binding", "binding_history", "merge_batch_request", "idempotency_record", "audit_record", "outbox"] {
            assert_eq!(world.count(table).await, 1, "{cut:?}: {table}");
        }
        assert_eq!(world.scalar::<u64>("SELECT used FROM target", ()).await, 1, "{cut:?}");
        world.assert_invariants().await;
    }
}

#[tokio::test]
async fn an_admission_that_loses_every_commit_leaves_nothing_and_may_be_asked_again() {
    let world = World::new().await;
    let before = world.snapshot().await;
    let unit = admit(grant("alice", "db"));
    let (store, proxy) = world.store_behind(Cut::BeforeServer, 3).await;
    let error = store.run(&unit).await.expect_err("three lost COMMITs");
    assert!(matches!(error, StoreError::CommitUnknown(_)) && error.is_fault(), "{error:?}");
    assert_eq!(proxy.left(), 0);
    assert_eq!(world.snapshot().await, before);
    let outcome = store.run(&unit).await.expect("the network is whole again");
    assert!(matches!(&outcome, AdmitOutcome::Admitted(admission) if admission.operation == unit.operation), "{outcome:?}");
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_claim_finds_its_own_batch() {
    for cut in CUTS {
        let world = World::with_waiting(3).await;
        let outcome = cut_once(&world, cut, &claim("round-1")).await;
        let batch = BatchId(world.scalar("SELECT id FROM merge_batch", ()).await);
        let members = world.waiting.clone();
        let expected = match cut {
            Cut::BeforeServer => ClaimOutcome::Claimed { batch, members },
            Cut::AfterServer => ClaimOutcome::AlreadyClaimed { batch, members },
        };
        assert_eq!(outcome, expected, "{cut:?}");
        assert_effects(&world, batch, &["batch.claimed 1", "open_merge_request 1"]).await;
    }
}

#[tokio::test]
async fn a_claim_finds_its_own_batch_although_its_partition_was_paused_meanwhile() {
    let world = World::with_waiting(1).await;
    let pausing = "UPDATE merge_partition SET pause_reason = 'freeze', pause_by = 'operator'";
    // The gate that is waited for is that of the run after the lost COMMIT.
    let meddler = probes::Meddle::new("claim", probes::At::Named("claim.lock_gate"), world.session().await, pausing);
    let (store, _proxy) = world.store_behind_with(Cut::AfterServer, 1, |options| options.probe = Some(meddler.clone())).await;
    let outcome = store.run(&claim("round-1")).await.expect("an outcome");
    assert!(matches!(&outcome, ClaimOutcome::AlreadyClaimed { members, .. } if *members == world.waiting), "{outcome:?}");
    assert_eq!(meddler.met(), 1);
}

#[tokio::test]
async fn a_settlement_that_merges_was_its_own() {
    for cut in CUTS {
        let world = World::with_waiting(2).await;
        let batch = batch(&world).await;
        assert_eq!(cut_once(&world, cut, &succeed(batch, "settler-1")).await, SettleOutcome::Settled, "{cut:?}");
        assert_effects(&world, batch, &["batch.claimed 1", "batch.succeeded 2", "delete_branch 2", "open_merge_request 1"]).await;
    }
}

#[tokio::test]
async fn both_steps_of_failing_were_their_own() {
    for cut in CUTS {
        let world = World::with_waiting(2).await;
        let batch = batch(&world).await;
        let unit = begin_fail(batch, FailCause::Infrastructure);
        assert_eq!(cut_once(&world, cut, &unit).await, SettleOutcome::Settled, "{cut:?}");
        assert_eq!(cut_once(&world, cut, &fail(batch, "settler-2")).await, SettleOutcome::Settled, "{cut:?}");
        let effects = ["batch.claimed 1", "batch.failed 3", "delete_branch 3", "open_merge_request 1", "withdraw_merge_request 2"];
        assert_effects(&world, batch, &effects).await;
        assert_eq!(world.count("merge_batch_request WHERE infra_attempts = 1").await, 2);
    }
}

#[tokio::test]
async fn a_settlement_that_another_won_meanwhile_says_so() {
    let world = World::with_waiting(1).await;
    let batch = batch(&world).await;
    let pause = probes::Pause::new("succeed", probes::At::BeforeCommit);
    let (store, _proxy) = world.store_behind_with(Cut::BeforeServer, 1, |options| options.probe = Some(pause.clone())).await;
    let running = tokio::spawn(async move { store.run(&succeed(batch, "loser")).await });
    pause.reached().await;
    // It waits for the gate until the loser's connection is cut.
    let winner = tokio::spawn({
        let store = world.store();
        async move { store.run(&succeed(batch, "winner")).await }
    });
    world.until_somebody_waits_for_a_lock().await;
    pause.release();
    assert_eq!(winner.await.expect("no panic").expect("an outcome"), SettleOutcome::Settled);
    let outcome = running.await.expect("no panic").expect("an outcome");
    assert_eq!(outcome, SettleOutcome::Preempted { status: shared::state::BatchStatus::Succeeded });
    assert_eq!(world.scalar::<String>("SELECT settled_by FROM merge_batch", ()).await, "winner");
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_render_and_a_merge_request_are_recorded_once() {
    for cut in CUTS {
        let world = World::with_waiting(2).await;
        let batch = batch(&world).await;
        assert_eq!(cut_once(&world, cut, &record_render(batch)).await, RecordRenderOutcome::Recorded { left: 2 }, "{cut:?}");
        let expected = match cut {
            Cut::BeforeServer => RecordMergeRequestOutcome::Recorded,
            Cut::AfterServer => RecordMergeRequestOutcome::AlreadyRecorded,
        };
        assert_eq!(cut_once(&world, cut, &record_merge_request(batch, 7)).await, expected, "{cut:?}");
        assert_effects(&world, batch, &["arm_merge 3", "batch.claimed 1", "open_merge_request 1"]).await;
    }
}

#[tokio::test]
async fn a_batch_is_blocked_once() {
    for cut in CUTS {
        let world = World::with_waiting(2).await;
        let batch = batch(&world).await;
        let outcome = cut_once(&world, cut, &block(batch)).await;
        let expected = match cut {
            Cut::BeforeServer => SettleOutcome::Settled,
            // A batch does not say who blocked it; that it is blocked is true.
            Cut::AfterServer => SettleOutcome::Preempted { status: shared::state::BatchStatus::Blocked },
        };
        assert_eq!(outcome, expected, "{cut:?}");
        assert_effects(&world, batch, &["batch.blocked 2", "batch.claimed 1", "disarm_merge 2", "open_merge_request 1"]).await;
    }
}

#[tokio::test]
async fn a_withdrawal_was_its_own() {
    for cut in CUTS {
        let world = World::new().await.with_target("db", "default", Some(5)).await;
        let operation = world.admitted(grant("alice", "db")).await;
        assert_eq!(cut_once(&world, cut, &withdraw(&operation)).await, WithdrawOutcome::Withdrawn, "{cut:?}");
        assert_eq!(world.scalar::<u64>("SELECT used FROM target", ()).await, 0, "{cut:?}");
        assert_eq!(world.count(&format!("outbox WHERE dedup_key LIKE 'request.withdrawn:{operation}:%'")).await, 1, "{cut:?}");
        world.assert_invariants().await;
    }
}

#[tokio::test]
async fn leased_effects_reach_their_holder_and_are_recorded_once() {
    for cut in CUTS {
        let world = World::with_waiting(1).await;
        let batch = batch(&world).await;
        let token = LeaseToken::random();
        let leased = cut_once(&world, cut, &LeaseDeliveries { scope: Scope::Batch(batch), effects: 100, events: 100, token }).await;
        assert_eq!(leased.len(), 2, "{cut:?}: leased for 90 seconds to one who does not know it");
        assert_eq!(world.count("outbox WHERE batch_id IS NOT NULL AND attempts <> 1").await, 0, "{cut:?}");
        for one in leased {
            let _ = cut_once(&world, cut, &RecordDeliveries { token, fates: vec![(one.key, Fate::Delivered)] }).await;
        }
        assert_eq!(world.count("outbox WHERE batch_id IS NOT NULL AND delivered_at IS NOT NULL").await, 2, "{cut:?}");
    }
}
