//! I3: an admission is never blocked by a batch, nor by the claim or the settlement in its course.
//!
//! The unit is stopped before each of its statements and before its COMMIT, holding whatever it holds there, and
//! an admission must come to its outcome. A lock that it met would answer as a fault after three seconds.

use muster_tests::deadline::within;
use muster_tests::probes::{At, Count, Pause};
use muster_tests::*;
use shared::Guarded;
use shared::ids::BatchId;
use shared::state::{BindingStatus, FailCause};
use shared::transactions::admit::{Admit, AdmitOutcome};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::ClaimOutcome;

/// Stops the unit at one point after the other, each time in a state made anew, and admits meanwhile.
///
/// `prepare` makes a state and answers the unit; `undo` ends what the unit left, so that the next can begin.
async fn admits_meanwhile<G>(world: &World, target: &str, prepare: impl AsyncFn(u32) -> G, undo: impl AsyncFn())
where
    G: Guarded + Send + 'static,
    G::Outcome: 'static,
{
    let count = Count::new();
    let unit = prepare(0).await;
    world.store_probed(count.clone()).run(&unit).await.map(drop).expect("an outcome");
    undo().await;
    let statements = count.statements();
    assert!(statements >= 3, "{} runs {statements} statements", G::NAME);
    let points = (1..=statements).map(At::Statement).chain([At::BeforeCommit]);
    for (turn, at) in points.enumerate() {
        let turn = turn as u32 + 1;
        let unit = prepare(turn).await;
        let pause = Pause::new(G::NAME, at);
        let store = world.store_with(|options| {
            options.unit_limit = muster_tests::deadline::DEADLINE;
            options.probe = Some(pause.clone());
        });
        let running = tokio::spawn(async move { store.run(&unit).await });
        pause.reached().await;
        let subject = format!("meanwhile-{turn}-{}", G::NAME);
        let meanwhile = Admit { key: key(&subject), ..admit(grant(&subject, target)) };
        let AdmitOutcome::Admitted(admission) = world.run(&meanwhile).await else { panic!("{at:?}: not admitted") };
        let again = Admit { key: key(&subject), ..admit(grant(&subject, target)) };
        assert_eq!(world.run(&again).await, AdmitOutcome::Replayed(admission.clone()), "{at:?}");
        let held = AdmitOutcome::BindingHeld { status: Some(BindingStatus::Applying), operation: Some(admission.operation) };
        assert_eq!(world.run(&admit(grant(&subject, target))).await, held, "{at:?}");
        pause.release();
        within(G::NAME, running).await.expect("no panic").map(drop).expect("an outcome");
        undo().await;
    }
    world.assert_invariants().await;
}

/// Ends whatever batch holds the slot.
async fn free_the_slot(world: &World) {
    let active: Vec<u64> = world.rows("SELECT id FROM merge_batch WHERE active_slot = 1", ()).await;
    for id in active {
        assert_eq!(world.run(&succeed(BatchId(id), "free the slot")).await, SettleOutcome::Settled);
    }
}

async fn claimed(world: &World, turn: u32) -> BatchId {
    let subject = format!("member-{turn}-{}", shared::ids::OperationId::new());
    world.admitted(grant(&subject, "db")).await;
    match world.run(&claim(&format!("turn-{turn}"))).await {
        ClaimOutcome::Claimed { batch, .. } => batch,
        other => panic!("not claimed: {other:?}"),
    }
}

#[tokio::test]
async fn by_a_claim() {
    let world = World::with_waiting(1).await;
    let prepare = async |turn: u32| {
        world.admitted(grant(&format!("next-{turn}"), "db")).await;
        claim(&format!("turn-{turn}"))
    };
    admits_meanwhile(&world, "db", prepare, async || free_the_slot(&world).await).await;
}

#[tokio::test]
async fn by_a_claim_of_200() {
    let world = World::with_waiting(200).await;
    let pause = Pause::new("claim", At::BeforeCommit);
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&claim("round-1")).await });
    pause.reached().await;
    for number in 0..20 {
        world.admitted(grant(&format!("meanwhile-{number}"), "db")).await;
    }
    let replayed = Admit { key: key(world.waiting[7].as_str()), ..admit(grant("subject-8", "db")) };
    let outcome = world.run(&replayed).await;
    assert!(matches!(&outcome, AdmitOutcome::Replayed(admission) if admission.operation == world.waiting[7]), "{outcome:?}");
    pause.release();
    let outcome = running.await.expect("no panic").expect("an outcome");
    assert!(matches!(&outcome, ClaimOutcome::Claimed { members, .. } if *members == world.waiting[..100]), "{outcome:?}");
    world.assert_invariants().await;
}

#[tokio::test]
async fn by_a_settlement_that_merges() {
    let world = World::new().await;
    let prepare = async |turn| succeed(claimed(&world, turn).await, &format!("settler-{turn}"));
    admits_meanwhile(&world, "db", prepare, async || free_the_slot(&world).await).await;
}

#[tokio::test]
async fn by_a_settlement_that_merges_revokes_of_an_uncounted_target() {
    let world = World::new().await;
    let prepare = async |turn: u32| {
        let subject = format!("leaver-{turn}");
        world.admitted(grant(&subject, "db")).await;
        assert_eq!(world.run(&succeed(world.claimed(&format!("grant-{turn}")).await, "granted")).await, SettleOutcome::Settled);
        world.admitted(revoke(&subject, "db")).await;
        succeed(world.claimed(&format!("turn-{turn}")).await, &format!("settler-{turn}"))
    };
    admits_meanwhile(&world, "db", prepare, async || free_the_slot(&world).await).await;
}

#[tokio::test]
async fn by_a_settlement_that_begins_to_fail() {
    let world = World::new().await;
    let prepare = async |turn| begin_fail(claimed(&world, turn).await, FailCause::Infrastructure);
    admits_meanwhile(&world, "db", prepare, async || free_the_slot(&world).await).await;
}

#[tokio::test]
async fn by_a_settlement_that_fails_for_each_cause() {
    for cause in [FailCause::Infrastructure, FailCause::Rejected] {
        let world = World::new().await;
        let prepare = async |turn| {
            let batch = claimed(&world, turn).await;
            assert_eq!(world.run(&begin_fail(batch, cause)).await, SettleOutcome::Settled);
            fail(batch, &format!("settler-{turn}"))
        };
        admits_meanwhile(&world, "db", prepare, async || free_the_slot(&world).await).await;
    }
}

#[tokio::test]
async fn by_blocking_and_unblocking() {
    let world = World::new().await;
    admits_meanwhile(&world, "db", async |turn| block(claimed(&world, turn).await), async || free_the_slot(&world).await).await;
    let prepare = async |turn| {
        let batch = claimed(&world, turn + 100).await;
        assert_eq!(world.run(&block(batch)).await, SettleOutcome::Settled);
        shared::transactions::unblock::Unblock { batch }
    };
    admits_meanwhile(&world, "db", prepare, async || free_the_slot(&world).await).await;
}

#[tokio::test]
async fn by_recording_a_render_or_a_merge_request() {
    let world = World::new().await;
    let prepare = async |turn| record_render(claimed(&world, turn).await);
    admits_meanwhile(&world, "db", prepare, async || free_the_slot(&world).await).await;
    let prepare = async |turn| record_merge_request(claimed(&world, turn + 100).await, u64::from(turn) + 1);
    admits_meanwhile(&world, "db", prepare, async || free_the_slot(&world).await).await;
}

#[tokio::test]
async fn by_seats_of_a_counted_target_that_are_given_back_until_the_last_statement() {
    // The counted target is the one row that both need: settle takes it last, for the length of one statement.
    let world = World::new().await.with_target("db", "default", Some(1000)).await;
    let batch = claimed(&world, 1).await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    let pause = Pause::new("fail", At::Named("seats.move_seats_of_counted_target"));
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&fail(batch, "settler-1")).await });
    pause.reached().await;
    world.admitted(grant("meanwhile", "db")).await;
    pause.release();
    assert_eq!(running.await.expect("no panic").expect("an outcome"), SettleOutcome::Settled);
    world.assert_invariants().await;
}
