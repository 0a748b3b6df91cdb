//! Taking a request back, in each state it may be in; and the end of what expired while it waited.

use muster_tests::*;
use serde_json::json;
use shared::ids::OperationId;
use shared::state::{FailCause, OperationStatus};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::ClaimOutcome;
use shared::transactions::withdraw::{Withdraw, WithdrawOutcome};

/// Runs the withdrawal, which must answer this and change nothing.
async fn refused(world: &World, unit: &Withdraw, outcome: WithdrawOutcome) {
    let before = world.snapshot().await;
    assert_eq!(world.run(unit).await, outcome);
    assert_eq!(world.snapshot().await, before);
    world.assert_invariants().await;
}

/// Operation, relationship and seats in one line.
async fn state(world: &World, operation: &OperationId) -> String {
    let sql = "SELECT CONCAT_WS(' ', o.status, IFNULL(o.code, '-'), b.status, t.used) FROM operation o \
               JOIN binding b USING (subject_id, target_key) JOIN target t USING (target_key) WHERE o.operation_id = ?";
    world.scalar(sql, (operation,)).await
}

#[tokio::test]
async fn a_waiting_grant_is_withdrawn_at_once_with_its_seat() {
    let world = World::new().await.with_target("db", "default", Some(1)).await;
    let operation = world.admitted(grant("alice", "db")).await;
    assert_eq!(state(&world, &operation).await, "1 - 1 1");
    assert_eq!(world.run(&withdraw(&operation)).await, WithdrawOutcome::Withdrawn);
    assert_eq!(state(&world, &operation).await, "6 - 6 0");
    assert_eq!(world.count("merge_batch_request").await, 0);
    let history = "SELECT CONCAT_WS(' ', IFNULL(from_status, '-'), to_status, actor) FROM binding_history ORDER BY id";
    assert_eq!(world.rows::<String>(history, ()).await, [format!("- 1 {REQUESTER}"), format!("1 6 {REQUESTER}")]);
    assert_eq!(world.count(&format!("audit_record WHERE action = 'withdraw' AND operation_id = '{operation}'")).await, 1);
    assert_eq!(world.count(&format!("outbox WHERE dedup_key = 'request.withdrawn:{operation}:2'")).await, 1);
    world.assert_invariants().await;
    // The seat is free, and the relationship too.
    world.admitted(grant("alice", "db")).await;
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_waiting_revoke_is_withdrawn_and_the_relationship_is_active_again() {
    let world = World::new().await.with_target("db", "default", Some(1)).await;
    world.admitted(grant("alice", "db")).await;
    assert_eq!(world.run(&succeed(world.claimed("round-1").await, "settler-1")).await, SettleOutcome::Settled);
    let operation = world.admitted(revoke("alice", "db")).await;
    assert_eq!(world.run(&withdraw(&operation)).await, WithdrawOutcome::Withdrawn);
    assert_eq!(state(&world, &operation).await, "6 - 2 1");
    world.assert_invariants().await;
    world.admitted(revoke("alice", "db")).await;
    world.assert_invariants().await;
}

#[tokio::test]
async fn in_a_batch_the_wish_is_noted_once() {
    let world = World::with_waiting(1).await;
    world.claimed("round-1").await;
    let operation = world.waiting[0].clone();
    assert_eq!(world.run(&withdraw(&operation)).await, WithdrawOutcome::Noted { status: OperationStatus::InBatch });
    assert_eq!(world.count("operation WHERE withdraw_requested_at IS NOT NULL AND status = 2").await, 1);
    assert_eq!(world.count("audit_record WHERE action = 'withdraw_requested'").await, 1);
    world.assert_invariants().await;
    refused(&world, &withdraw(&operation), WithdrawOutcome::Noted { status: OperationStatus::InBatch }).await;
}

#[tokio::test]
async fn a_failed_grant_notes_the_wish_and_a_failed_revoke_stays_with_operators() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Content)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler-1")).await, SettleOutcome::Settled);
    assert_eq!(world.run(&withdraw(&world.waiting[0])).await, WithdrawOutcome::Noted { status: OperationStatus::Failed });
    refused(&world, &withdraw(&world.waiting[0]), WithdrawOutcome::Noted { status: OperationStatus::Failed }).await;

    world.admitted(grant("bob", "db")).await;
    assert_eq!(world.run(&succeed(world.claimed("round-2").await, "settler-2")).await, SettleOutcome::Settled);
    let revoked = world.admitted(revoke("bob", "db")).await;
    let batch = world.claimed("round-3").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Content)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler-3")).await, SettleOutcome::Settled);
    refused(&world, &withdraw(&revoked), WithdrawOutcome::OperatorsOnly).await;
}

#[tokio::test]
async fn what_has_ended_stays_as_it_ended() {
    let world = World::with_waiting(1).await;
    assert_eq!(world.run(&succeed(world.claimed("round-1").await, "settler-1")).await, SettleOutcome::Settled);
    refused(&world, &withdraw(&world.waiting[0]), WithdrawOutcome::Ended { status: OperationStatus::Merged }).await;
    let rejected = world.admitted(grant("rejected", "db")).await;
    let batch = world.claimed("round-2").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler-2")).await, SettleOutcome::Settled);
    refused(&world, &withdraw(&rejected), WithdrawOutcome::Ended { status: OperationStatus::Rejected }).await;
    let withdrawn = world.admitted(grant("withdrawn", "db")).await;
    assert_eq!(world.run(&withdraw(&withdrawn)).await, WithdrawOutcome::Withdrawn);
    refused(&world, &withdraw(&withdrawn), WithdrawOutcome::Ended { status: OperationStatus::Withdrawn }).await;
}

#[tokio::test]
async fn an_unknown_request() {
    refused(&World::new().await, &withdraw(&OperationId::new()), WithdrawOutcome::Unknown).await;
}

#[tokio::test]
async fn a_request_that_a_round_claims_meanwhile_notes_the_wish_instead() {
    let world = World::with_waiting(1).await;
    let pause = probes::Pause::new("withdraw", probes::At::Named("withdraw.delete_waiting_row"));
    let (store, unit) = (world.store_probed(pause.clone()), withdraw(&world.waiting[0]));
    let running = tokio::spawn(async move { store.run(&unit).await });
    pause.reached().await;
    world.claimed("round-1").await;
    pause.release();
    let outcome = running.await.expect("no panic").expect("an outcome");
    assert_eq!(outcome, WithdrawOutcome::Noted { status: OperationStatus::InBatch });
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_wish_that_comes_as_the_batch_ends_is_answered_by_the_end() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    let pause = probes::Pause::new("withdraw", probes::At::Named("withdraw.note_wish_of_unended_operation"));
    let (store, unit) = (world.store_probed(pause.clone()), withdraw(&world.waiting[0]));
    let running = tokio::spawn(async move { store.run(&unit).await });
    pause.reached().await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    let before = world.snapshot().await;
    pause.release();
    let outcome = running.await.expect("no panic").expect("an outcome");
    assert_eq!(outcome, WithdrawOutcome::Ended { status: OperationStatus::Merged });
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn a_relationship_that_was_changed_by_hand_is_not_overwritten_but_alarmed() {
    let by_hand = ["UPDATE binding SET status = 6", "UPDATE binding SET operation_id = '01890000-0000-7000-8000-000000000001'"];
    for sql in by_hand {
        let world = World::with_waiting(1).await;
        world.sql(sql, ()).await;
        let before = world.snapshot().await;
        let error = world.try_run(&withdraw(&world.waiting[0])).await.expect_err("a relationship of somebody else");
        assert!(!error.is_fault() && error.to_string().contains("withdraw.move_applied_binding"), "{sql}: {error}");
        assert_eq!(world.snapshot().await, before, "{sql}");
    }
}

#[tokio::test]
async fn a_grant_that_expired_while_it_waited_is_rejected_with_its_seat_and_not_before() {
    let world = World::new().await.with_target("db", "default", Some(1)).await;
    let body = json!({ "subject_id": "brief", "target_key": "db", "action": "grant", "expires_at": "2999-01-01T00:00:00Z" });
    let operation = world.admitted(request(&body)).await;
    refused(&world, &expire(&operation), WithdrawOutcome::Preempted).await;
    world.sql("UPDATE operation SET expires_at = CURRENT_TIMESTAMP(6)", ()).await;
    assert_eq!(world.run(&expire(&operation)).await, WithdrawOutcome::Withdrawn);
    assert_eq!(state(&world, &operation).await, "4 expired 4 0");
    assert_eq!(world.count("merge_batch_request").await, 0);
    assert_eq!(world.count(&format!("outbox WHERE dedup_key = 'request.rejected:{operation}:2'")).await, 1);
    world.assert_invariants().await;
}

#[tokio::test]
async fn what_expires_in_a_batch_or_has_ended_is_left_to_its_batch() {
    let world = World::new().await;
    let body = json!({ "subject_id": "brief", "target_key": "db", "action": "grant", "expires_at": "2999-01-01T00:00:00Z" });
    let operation = world.admitted(request(&body)).await;
    let batch = world.claimed("round-1").await;
    world.sql("UPDATE operation SET expires_at = CURRENT_TIMESTAMP(6)", ()).await;
    refused(&world, &expire(&operation), WithdrawOutcome::Preempted).await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    refused(&world, &expire(&operation), WithdrawOutcome::Preempted).await;
}

#[tokio::test]
async fn what_never_expires_is_never_expired() {
    let world = World::with_waiting(1).await;
    refused(&world, &expire(&world.waiting[0]), WithdrawOutcome::Preempted).await;
}

#[tokio::test]
async fn a_withdrawal_and_a_claim_of_the_same_32_requests_each_get_some_and_none_gets_both() {
    let world = World::with_waiting(32).await;
    let store = world.store_patient(16);
    let withdrawing: Vec<_> = world
        .waiting
        .iter()
        .map(|operation| {
            let (store, unit) = (store.clone(), withdraw(operation));
            tokio::spawn(async move { store.run(&unit).await })
        })
        .collect();
    // Preempted at most: then it is asked again, as a round does.
    let claimed = deadline::until("a claim", async || match world.run(&claim("round-1")).await {
        ClaimOutcome::Claimed { members, .. } => Some(members),
        ClaimOutcome::NothingToClaim => Some(Vec::new()),
        ClaimOutcome::Preempted | ClaimOutcome::Contended => None,
        other => panic!("{other:?}"),
    })
    .await;
    let mut withdrawn = 0;
    for one in withdrawing {
        match one.await.expect("no panic").expect("an outcome, not an error") {
            WithdrawOutcome::Withdrawn => withdrawn += 1,
            WithdrawOutcome::Noted { status: OperationStatus::InBatch } | WithdrawOutcome::Preempted => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.count("operation WHERE status = 6").await, withdrawn);
    assert_eq!(world.count("operation WHERE status = 2").await, claimed.len() as u64);
    world.assert_invariants().await;
}
