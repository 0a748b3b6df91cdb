//! Guards mask one another: here each column of a guard is changed alone, by hand and without a new version, just before
//! the guarded write, and the write must not go through.

mod of_batches;

use std::future::Future;
use std::pin::Pin;

use muster_tests::probes::{At, Meddle};
use muster_tests::*;
use shared::ids::{BatchId, OperationId, Principal};
use shared::state::FailCause;
use shared::transactions::claim::ClaimOutcome;
use shared::transactions::close_failed::CloseFailed;
use shared::transactions::recover::{Recover, RecoverTo};
use shared::{Guarded, Store};

/// The name of the outcome, or what the error says.
type Told = Pin<Box<dyn Future<Output = String> + Send>>;

fn told<G: Guarded + Send + 'static>(store: Store, unit: G) -> Told
where
    G::Outcome: 'static,
{
    Box::pin(async move { store.run(&unit).await.map_or_else(|error| error.to_string(), |outcome| G::outcome_name(&outcome).to_owned()) })
}

/// What stands before the unit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A relationship that is over: its grant was withdrawn.
    Closed,
    Active,
    Waiting,
    /// Two in a batch that has begun to fail.
    Failing(FailCause),
    /// A convicted grant that its requester wants closed.
    Failed,
    /// Two members of a batch that has failed, waiting again.
    Late,
}

async fn prepared(before: Before) -> (World, OperationId, BatchId) {
    let world = World::new().await.with_target("db", "default", Some(10)).await;
    let one = world.admitted(grant("alice", "db")).await;
    if matches!(before, Before::Failing(_) | Before::Late) {
        world.admitted(grant("bob", "db")).await;
    }
    if before == Before::Closed {
        let _ = world.run(&withdraw(&one)).await;
    }
    if matches!(before, Before::Closed | Before::Waiting) {
        return (world, one, BatchId(0));
    }
    let batch = world.claimed("round-1").await;
    let cause = match before {
        Before::Failing(cause) => cause,
        Before::Failed => FailCause::Content,
        Before::Late => FailCause::Infrastructure,
        _ => {
            let _ = world.run(&succeed(batch, "settler")).await;
            return (world, one, batch);
        }
    };
    let _ = world.run(&begin_fail(batch, cause)).await;
    if matches!(before, Before::Failed | Before::Late) {
        let _ = world.run(&fail(batch, "settler")).await;
    }
    if before == Before::Failed {
        let _ = world.run(&withdraw(&one)).await;
    }
    (world, one, batch)
}

/// Changes rows by hand each time that the unit reaches the statement.
///
/// `left` counts rows that must be there afterwards, as often as it says.
async fn meddled(
    before: Before,
    unit: impl Fn(Store, &OperationId, BatchId) -> Told,
    (name, statement): (&'static str, &'static str),
    by_hand: &'static str,
    expected: &str,
    left: (&str, u64),
) {
    let (world, one, batch) = prepared(before).await;
    let meddle = Meddle::new(name, At::Named(statement), world.session().await, by_hand);
    let came = unit(world.store_probed(meddle.clone()), &one, batch).await;
    assert!(meddle.met() > 0, "{statement} was not reached");
    assert!(came.contains(expected), "{statement}, and {by_hand}: {came}");
    assert_eq!(world.count(left.0).await, left.1, "{statement}, and {by_hand}: {}", left.0);
}

#[tokio::test]
async fn of_a_relationship_that_is_applied_for_anew() {
    let again = |store: Store, _: &OperationId, _| told(store, admit(grant("alice", "db")));
    let at = ("admit", "admit.reset_read_binding");
    let left = ("operation", 1);
    for by_hand in [
        "UPDATE binding SET status = IF(status = 6, 4, 6)",
        "UPDATE binding SET operation_id = IF(operation_id LIKE '%1', REPLACE(operation_id, RIGHT(operation_id, 1), '2'), CONCAT(LEFT(operation_id, 35), '1'))",
        "UPDATE binding SET version = version + 1",
    ] {
        meddled(Before::Closed, again, at, by_hand, "preempted", left).await;
    }
}

#[tokio::test]
async fn of_a_relationship_that_is_revoked() {
    let revokes = |store: Store, _: &OperationId, _| told(store, admit(revoke("alice", "db")));
    let at = ("admit", "admit.revoke_active_binding");
    let left = ("operation", 1);
    meddled(Before::Active, revokes, at, "UPDATE binding SET status = 3", "binding_held", left).await;
    let another = "UPDATE binding SET operation_id = IF(operation_id LIKE '%1', CONCAT(LEFT(operation_id, 35), '2'), CONCAT(LEFT(operation_id, 35), '1'))";
    meddled(Before::Active, revokes, at, another, "preempted", left).await;
    meddled(Before::Active, revokes, at, "UPDATE binding SET version = version + 1", "preempted", left).await;
}

#[tokio::test]
async fn of_a_request_that_is_withdrawn() {
    let withdraws = |store: Store, one: &OperationId, _| told(store, withdraw(one));
    let at = ("withdraw", "withdraw.end_waiting_operation");
    let waits = ("merge_batch_request", 1);
    meddled(Before::Waiting, withdraws, at, "UPDATE operation SET status = 2, batch_id = 9", "noted", waits).await;
    meddled(Before::Waiting, withdraws, at, "UPDATE operation SET version = version + 1", "preempted", waits).await;
    let row = ("withdraw", "withdraw.delete_waiting_row");
    let claimed = ("merge_batch_request WHERE batch_id = 999", 1);
    meddled(Before::Waiting, withdraws, row, "UPDATE merge_batch_request SET batch_id = 999", "preempted", claimed).await;
}

#[tokio::test]
async fn of_a_request_whose_requester_wants_it_back() {
    let wishes = |store: Store, one: &OperationId, _| told(store, withdraw(one));
    let at = ("withdraw", "withdraw.note_wish_of_unended_operation");
    let unnoted = ("audit_record WHERE action = 'withdraw_requested'", 0);
    let failing = Before::Failing(FailCause::Infrastructure);
    meddled(failing, wishes, at, "UPDATE operation SET status = IF(status = 2, 5, 2)", "preempted", unnoted).await;
    meddled(failing, wishes, at, "UPDATE operation SET version = version + 1", "preempted", unnoted).await;
    meddled(failing, wishes, at, "UPDATE operation SET withdraw_requested_at = CURRENT_TIMESTAMP(6)", "noted", unnoted).await;
}

#[tokio::test]
async fn of_a_failed_request_that_is_closed() {
    let closes = |store: Store, one: &OperationId, _| told(store, CloseFailed { operation: one.clone(), actor: Principal::muster() });
    let at = ("close_failed", "close_failed.close_failed_operation");
    let open = ("operation WHERE status = 7", 0);
    for by_hand in [
        "UPDATE operation SET status = 1",
        "UPDATE operation SET version = version + 1",
        "UPDATE operation SET withdraw_requested_at = NULL",
    ] {
        meddled(Before::Failed, closes, at, by_hand, "preempted", open).await;
    }
    let row = ("close_failed", "close_failed.delete_kept_row");
    meddled(Before::Failed, closes, row, "UPDATE merge_batch_request SET batch_id = batch_id + 1", "preempted", open).await;
    let binding = ("close_failed", "close_failed.close_failed_binding");
    for by_hand in ["UPDATE binding SET status = 1", "UPDATE binding SET operation_id = CONCAT(LEFT(operation_id, 35), 'x')"] {
        meddled(Before::Failed, closes, binding, by_hand, "close_failed.close_failed_binding", open).await;
    }
}

#[tokio::test]
async fn only_a_grant_that_was_taken_back_is_closed_without_an_operator() {
    for by_hand in ["UPDATE operation SET withdraw_requested_at = NULL", "UPDATE operation SET action = 2"] {
        let (world, one, _) = prepared(Before::Failed).await;
        world.sql(by_hand, ()).await;
        let before = world.snapshot().await;
        assert_eq!(told(world.store(), CloseFailed { operation: one, actor: Principal::muster() }).await, "preempted");
        assert_eq!(world.snapshot().await, before, "{by_hand}");
    }
}

#[tokio::test]
async fn of_a_failed_request_that_is_recovered() {
    let (world, ..) = prepared(Before::Failed).await;
    let version: u64 = world.scalar("SELECT version FROM operation", ()).await;
    drop(world);
    for (to, ended) in
        [(RecoverTo::Closed, "operation WHERE status = 7"), (RecoverTo::Merged { commit: "c".repeat(40) }, "operation WHERE status = 3")]
    {
        let recovers = |store: Store, one: &OperationId, _| {
            told(store, Recover { operation: one.clone(), version, to: to.clone(), actor: principal(OPERATOR) })
        };
        let at = ("recover", "recover.move_failed_operation");
        meddled(Before::Failed, recovers, at, "UPDATE operation SET status = 1", "not_failed", (ended, 0)).await;
        meddled(Before::Failed, recovers, at, "UPDATE operation SET version = version + 1", "preempted", (ended, 0)).await;
        let binding = ("recover", "recover.move_failed_binding");
        for by_hand in ["UPDATE binding SET status = 1", "UPDATE binding SET operation_id = CONCAT(LEFT(operation_id, 35), 'x')"] {
            meddled(Before::Failed, recovers, binding, by_hand, "recover.move_failed_binding", (ended, 0)).await;
        }
    }
    let waits = |store: Store, one: &OperationId, _| {
        told(store, Recover { operation: one.clone(), version: version - 1, to: RecoverTo::Waiting, actor: principal(OPERATOR) })
    };
    let row = ("recover", "recover.reset_kept_row");
    let (world, one, _) = prepared(Before::Failed).await;
    // As if it had not been taken back, for it is to wait again.
    world.sql("UPDATE operation SET withdraw_requested_at = NULL, version = version - 1", ()).await;
    let meddle = Meddle::new(row.0, At::Named(row.1), world.session().await, "UPDATE merge_batch_request SET batch_id = batch_id + 1");
    assert_eq!(waits(world.store_probed(meddle.clone()), &one, BatchId(0)).await, "preempted");
    assert!(meddle.met() > 0);
    assert_eq!(world.count("merge_batch_request WHERE batch_id IS NULL").await, 0);
}

#[tokio::test]
async fn of_a_relationship_that_another_begins_meanwhile() {
    let world = World::new().await;
    let by_hand = "INSERT IGNORE INTO binding (subject_id, target_key, status, operation_id) \
                   VALUES ('alice', 'db', 1, '01890000-0000-7000-8000-000000000001')";
    let meddle = Meddle::new("admit", At::Named("admit.insert_absent_binding"), world.session().await, by_hand);
    assert_eq!(told(world.store_probed(meddle), admit(grant("alice", "db"))).await, "binding_held");
    assert_eq!(world.count("operation").await, 0);
}

#[tokio::test]
async fn of_a_target_that_another_creates_meanwhile() {
    let world = World::new().await.with_partition("east").await;
    let by_hand = "INSERT IGNORE INTO target (target_key, partition_key) VALUES ('new', 'east')";
    let meddle = Meddle::new("admit", At::Named("admit.insert_unknown_target"), world.session().await, by_hand);
    assert_eq!(told(world.store_probed(meddle), admit(grant("alice", "new"))).await, "admitted");
    assert_eq!(world.count("operation WHERE partition_key = 'east'").await, 1);
}

#[tokio::test]
async fn a_round_takes_what_waits_and_is_told_of_the_batch_that_runs() {
    let (world, _, merged) = prepared(Before::Active).await;
    let second = world.admitted(grant("bob", "db")).await;
    let ClaimOutcome::Claimed { batch, members } = world.run(&claim("round-2")).await else { panic!("not claimed") };
    assert_eq!(members, [second], "not what was merged before");
    assert_ne!(batch, merged);
    world.admitted(grant("carol", "db")).await;
    assert_eq!(world.run(&claim("round-3")).await, ClaimOutcome::SlotOccupied { batch });
}
