//! withdraw, and the closing of FAILED grants that it asks for.

use muster_tests::journey::Journey;
use muster_tests::proxy::Cut;
use muster_tests::{World, begin_fail, fail, grant, principal, revoke, succeed, withdraw};
use serde_json::{Value, json};
use shared::ids::OperationId;
use shared::state::FailCause;
use shared::transactions::close_failed::{CloseFailed, CloseFailedOutcome};
use shared::transactions::withdraw::WithdrawOutcome;

use super::{already, refused, rehearsed_then_done};

/// A grant that its own pipeline convicted.
async fn failed_grant(world: &World) -> OperationId {
    let operation = world.admitted(grant("alice", "db")).await;
    let batch = world.claimed("token-f").await;
    let _ = world.run(&begin_fail(batch, FailCause::Content)).await;
    let _ = world.run(&fail(batch, "settler")).await;
    operation
}

fn close(operation: &OperationId) -> CloseFailed {
    CloseFailed { operation: operation.clone(), actor: principal("muster") }
}

#[tokio::test]
async fn a_waiting_request_is_withdrawn_once() {
    let journey = Journey::new().await;
    let request = journey.world.admitted(grant("alice", "db")).await;
    let fields = json!({ "operation_id": request });
    let done = rehearsed_then_done(&journey, "withdraw", fields.clone()).await;
    assert_eq!((&done["before"]["status"], &done["after"]["status"]), (&json!("WAITING"), &json!("WITHDRAWN")), "{done}");
    already(&journey, "withdraw", fields).await;
    let unknown = OperationId::new();
    let answer = refused(&journey, "withdraw", json!({ "operation_id": unknown }), "there is no request").await;
    assert_eq!(answer["before"], Value::Null);
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_claimed_request_is_noted_and_an_ended_one_is_refused() {
    let journey = Journey::new().await;
    let request = journey.world.admitted(grant("alice", "db")).await;
    let fields = json!({ "operation_id": request });
    let batch = journey.world.claimed("token-1").await;
    let done = rehearsed_then_done(&journey, "withdraw", fields.clone()).await;
    assert_eq!(done["after"]["status"], "IN_BATCH", "{done}");
    assert!(done["after"]["withdraw_requested_at"].is_string(), "{done}");
    already(&journey, "withdraw", fields.clone()).await;
    let _ = journey.world.run(&succeed(batch, "settler")).await;
    refused(&journey, "withdraw", fields, "is MERGED and has ended").await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_failed_revoke_is_no_matter_of_withdrawing() {
    let journey = Journey::new().await;
    journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.world.claimed("token-1").await;
    let _ = journey.world.run(&succeed(batch, "settler")).await;
    let taken_back = journey.world.admitted(revoke("alice", "db")).await;
    let batch = journey.world.claimed("token-2").await;
    let _ = journey.world.run(&begin_fail(batch, FailCause::Content)).await;
    let _ = journey.world.run(&fail(batch, "settler")).await;
    refused(&journey, "withdraw", json!({ "operation_id": taken_back }), "the access it was to take away still stands").await;
    assert_eq!(journey.world.run(&close(&taken_back)).await, CloseFailedOutcome::Preempted);
}

#[tokio::test]
async fn a_failed_grant_is_closed_on_its_requesters_wish_and_can_be_applied_again() {
    let world = World::new().await.with_target("db", "default", Some(1)).await;
    let operation = failed_grant(&world).await;
    let before = world.snapshot().await;
    assert_eq!(world.run(&close(&operation)).await, CloseFailedOutcome::Preempted);
    assert_eq!(world.snapshot().await, before, "nobody has asked for it");
    assert!(matches!(world.run(&withdraw(&operation)).await, WithdrawOutcome::Noted { .. }));
    assert_eq!(world.run(&close(&operation)).await, CloseFailedOutcome::Closed);
    let states: (i64, i64) = world.rows("SELECT o.status, b.status FROM operation o JOIN binding b USING (operation_id)", ()).await[0];
    assert_eq!(states, (7, 6));
    assert_eq!((world.count("merge_batch_request").await, world.scalar::<u64>("SELECT used FROM target", ()).await), (0, 0));
    let last = "SELECT from_status, to_status, actor FROM binding_history ORDER BY id DESC LIMIT 1";
    let history: Vec<(i64, i64, String)> = world.rows(last, ()).await;
    assert_eq!(history, [(5, 6, "muster".into())]);
    assert_eq!(world.count("audit_record WHERE action = 'close_failed'").await, 1);
    let event: String = world
        .scalar("SELECT JSON_UNQUOTE(JSON_EXTRACT(payload, '$.status')) FROM outbox WHERE dedup_key LIKE 'request.withdrawn:%'", ())
        .await;
    assert_eq!(event, "CLOSED");
    let before = world.snapshot().await;
    assert_eq!(world.run(&close(&operation)).await, CloseFailedOutcome::Preempted);
    assert_eq!(world.snapshot().await, before);
    world.admitted(grant("alice", "db")).await;
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_failed_grant_is_closed_once_however_many_try_and_whatever_answer_is_lost() {
    let world = World::new().await;
    let operation = failed_grant(&world).await;
    assert!(matches!(world.run(&withdraw(&operation)).await, WithdrawOutcome::Noted { .. }));
    let store = world.store_with(|options| options.connections = 4);
    let mut closing = Vec::new();
    for _ in 0..8 {
        let (store, unit) = (store.clone(), close(&operation));
        closing.push(tokio::spawn(async move { store.run(&unit).await.expect("an outcome") }));
    }
    let mut closed = 0;
    for one in closing {
        closed += u32::from(one.await.expect("no panic") == CloseFailedOutcome::Closed);
    }
    assert_eq!(closed, 1);
    world.assert_invariants().await;
    for cut in [Cut::BeforeServer, Cut::AfterServer] {
        let world = World::new().await;
        let operation = failed_grant(&world).await;
        assert!(matches!(world.run(&withdraw(&operation)).await, WithdrawOutcome::Noted { .. }));
        let (store, proxy) = world.store_behind(cut, 1).await;
        assert_eq!(store.run(&close(&operation)).await.expect("an outcome"), CloseFailedOutcome::Closed, "{cut:?}");
        assert_eq!(proxy.left(), 0);
        world.assert_invariants().await;
    }
}
