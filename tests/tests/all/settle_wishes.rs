//! A wish to withdraw a member while its batch ends, in every order.

use muster_tests::*;
use shared::state::{FailCause, OperationStatus};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::withdraw::WithdrawOutcome;

#[tokio::test]
async fn a_wish_to_withdraw_wins_over_waiting_again_and_over_a_conviction() {
    for cause in [FailCause::Infrastructure, FailCause::Content] {
        let world = World::new().await.with_target("db", "default", Some(10)).await;
        let wished = world.admitted(grant("alice", "db")).await;
        let batch = world.claimed("round-1").await;
        assert_eq!(world.run(&withdraw(&wished)).await, WithdrawOutcome::Noted { status: OperationStatus::InBatch });
        assert_eq!(world.run(&begin_fail(batch, cause)).await, SettleOutcome::Settled);
        assert_eq!(world.run(&fail(batch, "settler-2")).await, SettleOutcome::Settled);
        let state = "SELECT CONCAT_WS(' ', o.status, b.status, t.used) FROM operation o, binding b, target t";
        assert_eq!(world.scalar::<String>(state, ()).await, "6 6 0", "{cause}");
        assert_eq!(world.count("merge_batch_request").await, 0);
        assert_eq!(world.count("merge_batch_member WHERE outcome = 5").await, 1);
        assert_eq!(world.count(&format!("outbox WHERE dedup_key LIKE 'request.withdrawn:{wished}:%'")).await, 1);
        world.assert_invariants().await;
    }
}

#[tokio::test]
async fn a_persons_rejection_and_a_merge_win_over_a_wish_to_withdraw() {
    for (cause, state) in [(Some(FailCause::Rejected), "4 4"), (None, "3 2")] {
        let world = World::with_waiting(1).await;
        let batch = world.claimed("round-1").await;
        assert_eq!(world.run(&withdraw(&world.waiting[0])).await, WithdrawOutcome::Noted { status: OperationStatus::InBatch });
        if let Some(cause) = cause {
            assert_eq!(world.run(&begin_fail(batch, cause)).await, SettleOutcome::Settled);
            assert_eq!(world.run(&fail(batch, "settler-2")).await, SettleOutcome::Settled);
        } else {
            assert_eq!(world.run(&succeed(batch, "settler-2")).await, SettleOutcome::Settled);
        }
        assert_eq!(world.scalar::<String>("SELECT CONCAT_WS(' ', o.status, b.status) FROM operation o, binding b", ()).await, state);
        world.assert_invariants().await;
    }
}

#[tokio::test]
async fn a_wish_that_comes_while_the_batch_fails_is_not_lost() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    let pause = probes::Pause::new("fail", probes::At::Named("members.requeue_claimed_rows"));
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&fail(batch, "settler-2")).await });
    pause.reached().await;
    assert_eq!(world.run(&withdraw(&world.waiting[0])).await, WithdrawOutcome::Noted { status: OperationStatus::InBatch });
    pause.release();
    assert_eq!(running.await.expect("no panic").expect("an outcome"), SettleOutcome::Settled);
    assert_eq!(world.scalar::<i64>("SELECT status FROM operation", ()).await, 6);
    world.assert_invariants().await;
}
