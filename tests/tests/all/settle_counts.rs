//! What is counted as batches end: seats of targets, rejections of expiry revokes.

use muster_tests::*;
use shared::ids::Principal;
use shared::state::FailCause;
use shared::transactions::admit::{Admit, AdmitOutcome};
use shared::transactions::batch_row::SettleOutcome;

#[tokio::test]
async fn seats_are_left_alone_where_the_target_is_not_counted() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler-2")).await, SettleOutcome::Settled);
    assert_eq!(world.scalar::<String>("SELECT CONCAT_WS(' ', used, version) FROM target", ()).await, "0 1");
}

#[tokio::test]
async fn a_capacity_that_is_set_while_a_batch_fails_counts_right() {
    let world = World::with_waiting(2).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    let pause = probes::Pause::new("fail", probes::At::Named("seats.pin_uncounted_target"));
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&fail(batch, "settler-2")).await });
    pause.reached().await;
    // As set_target does it: the seats that relationships hold by now.
    world
        .sql(
            "UPDATE target SET capacity = 5, used = (SELECT COUNT(*) FROM binding WHERE status IN (1, 2, 3, 5)), version = version + 1",
            (),
        )
        .await;
    pause.release();
    assert_eq!(running.await.expect("no panic").expect("an outcome"), SettleOutcome::Settled);
    assert_eq!(world.scalar::<String>("SELECT CONCAT_WS(' ', capacity, used) FROM target", ()).await, "5 0");
    world.assert_invariants().await;
}

#[tokio::test]
async fn the_third_rejection_of_an_expiry_revoke_makes_the_relationship_failed() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-0").await;
    assert_eq!(world.run(&succeed(batch, "settler-0")).await, SettleOutcome::Settled);
    for (turn, state) in [(1, "4 2 1"), (2, "4 2 2"), (3, "5 5 3")] {
        let unit = Admit { principal: Principal::expiry(), ..admit(revoke("subject-1", "db")) };
        let outcome = world.run(&unit).await;
        assert!(matches!(outcome, AdmitOutcome::Admitted(_)), "{outcome:?}");
        let batch = world.claimed(&format!("round-{turn}")).await;
        assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
        assert_eq!(world.run(&fail(batch, &format!("settler-{turn}"))).await, SettleOutcome::Settled);
        let sql = "SELECT CONCAT_WS(' ', o.status, b.status, b.expiry_rejections) FROM operation o JOIN binding b USING (operation_id)";
        assert_eq!(world.scalar::<String>(sql, ()).await, state, "rejection {turn}");
        world.assert_invariants().await;
    }
}
