//! Guards of batches, their members, seats and effects.

use muster_tests::*;
use shared::Store;
use shared::ids::OperationId;
use shared::state::FailCause;
use shared::transactions::deliveries::{LeaseDeliveries, LeaseToken, Scope};
use shared::transactions::note_progress::NoteProgress;
use shared::transactions::reconcile_late_merge::ReconcileLateMerge;

use super::{Before, meddled, prepared, told};

#[tokio::test]
async fn of_a_row_that_left_the_batch_meanwhile() {
    let fails = |store: Store, _: &OperationId, batch| told(store, fail(batch, "settler"));
    for (cause, statement) in [
        (FailCause::Infrastructure, "members.requeue_claimed_rows"),
        (FailCause::Rejected, "members.delete_claimed_rows"),
        (FailCause::Content, "members.requeue_suspect_claimed_rows"),
    ] {
        let by_hand = "UPDATE merge_batch_request SET batch_id = 999 ORDER BY id LIMIT 1";
        let at = ("fail", statement);
        meddled(Before::Failing(cause), fails, at, by_hand, "settled", ("merge_batch_request WHERE batch_id = 999", 1)).await;
        // And its request, which is in that other batch, is left alone.
        meddled(Before::Failing(cause), fails, at, by_hand, "settled", ("operation WHERE status = 2", 1)).await;
    }
}

#[tokio::test]
async fn of_a_request_that_changed_while_its_batch_failed() {
    let fails = |store: Store, _: &OperationId, batch| told(store, fail(batch, "settler"));
    let at = ("fail", "members.move_batched_operations");
    let failing = Before::Failing(FailCause::Infrastructure);
    let ended = "UPDATE operation SET status = 5 ORDER BY operation_id LIMIT 1";
    meddled(failing, fails, at, ended, "settled", ("operation WHERE status = 5", 1)).await;
    meddled(failing, fails, at, ended, "settled", ("merge_batch_request WHERE batch_id IS NULL", 1)).await;
    let elsewhere = "UPDATE operation SET batch_id = 999 ORDER BY operation_id LIMIT 1";
    meddled(failing, fails, at, elsewhere, "preempted", ("operation WHERE status = 2", 2)).await;
    let anew = "UPDATE operation SET version = version + 1 ORDER BY operation_id LIMIT 1";
    meddled(failing, fails, at, anew, "preempted", ("operation WHERE status = 2", 2)).await;
    let told_already = "UPDATE merge_batch_member SET outcome = 3 ORDER BY operation_id LIMIT 1";
    let outcomes = ("fail", "members.record_open_outcomes");
    meddled(failing, fails, outcomes, told_already, "members.record_open_outcomes", ("operation WHERE status = 2", 2)).await;
}

#[tokio::test]
async fn of_seats_that_are_fewer_than_are_given_back() {
    let fails = |store: Store, _: &OperationId, batch| told(store, fail(batch, "settler"));
    let at = ("fail", "seats.move_seats_of_counted_target");
    let rejecting = Before::Failing(FailCause::Rejected);
    meddled(rejecting, fails, at, "UPDATE target SET used = 1", "counts fewer seats than are given back", ("merge_partition", 1)).await;
}

#[tokio::test]
async fn the_seats_of_one_target_are_given_back_together() {
    let (world, _, batch) = prepared(Before::Failing(FailCause::Rejected)).await;
    assert_eq!(told(world.store(), fail(batch, "settler")).await, "settled");
    assert_eq!(world.scalar::<u64>("SELECT used FROM target", ()).await, 0);
}

#[tokio::test]
async fn of_what_a_late_merge_has_read() {
    let merges = |store: Store, _: &OperationId, batch| {
        told(store, ReconcileLateMerge { batch, by: "settler".to_owned(), merge_sha: "b".repeat(40) })
    };
    let at = ("reconcile_late_merge", "reconcile_late_merge.merge_read_operations");
    let unmerged = ("operation WHERE status = 3", 0);
    let one = "UPDATE operation SET version = version + 1 ORDER BY operation_id LIMIT 1";
    meddled(Before::Late, merges, at, one, "preempted", unmerged).await;
    let rows = ("reconcile_late_merge", "reconcile_late_merge.delete_waiting_rows");
    let claimed = "UPDATE merge_batch_request SET batch_id = 999 ORDER BY id LIMIT 1";
    meddled(Before::Late, merges, rows, claimed, "reconciled", ("merge_batch_request WHERE batch_id = 999", 1)).await;
    let bindings = ("reconcile_late_merge", "reconcile_late_merge.move_read_bindings");
    meddled(Before::Late, merges, bindings, "UPDATE binding SET version = version + 1", "preempted", unmerged).await;
}

#[tokio::test]
async fn of_an_effect_that_is_about_to_be_leased() {
    let leases = |store: Store, _: &OperationId, _| {
        told(store, LeaseDeliveries { scope: Scope::All, effects: 10, events: 10, token: LeaseToken::random() })
    };
    let at = ("lease_deliveries", "deliveries.lock_free_due_rows");
    for by_hand in [
        "UPDATE outbox SET due_at = CURRENT_TIMESTAMP(6) + INTERVAL 1 HOUR",
        "UPDATE outbox SET lease_token = REPEAT('x', 16), leased_until = CURRENT_TIMESTAMP(6) + INTERVAL 1 HOUR",
        "UPDATE outbox SET delivered_at = CURRENT_TIMESTAMP(6)",
    ] {
        meddled(Before::Waiting, leases, at, by_hand, "nothing_due", ("outbox WHERE attempts > 0", 0)).await;
    }
}

#[tokio::test]
async fn a_second_merge_request_does_not_replace_the_first() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(told(world.store(), record_merge_request(batch, 7)).await, "recorded");
    assert_eq!(told(world.store(), record_merge_request(batch, 8)).await, "preempted");
    assert_eq!(world.scalar::<u64>("SELECT mr_iid FROM merge_batch", ()).await, 7);
}

#[tokio::test]
async fn only_a_running_batch_that_does_not_fail_makes_progress() {
    for is_blocked in [true, false] {
        let world = World::with_waiting(1).await;
        let batch = world.claimed("round-1").await;
        match is_blocked {
            true => assert_eq!(told(world.store(), block(batch)).await, "settled"),
            false => assert_eq!(told(world.store(), begin_fail(batch, FailCause::Infrastructure)).await, "begun"),
        }
        let before = world.snapshot().await;
        let progress = NoteProgress { batch, step: "pipeline_underway" };
        assert_eq!(told(world.store(), progress).await, "unchanged");
        assert_eq!(world.snapshot().await, before);
    }
}

/// Such as an expiry that was rejected for the third time while the others were rendered.
#[tokio::test]
async fn a_member_that_has_ended_before_its_batch_is_left_as_it_is() {
    let (world, one, batch) = prepared(Before::Failing(FailCause::Infrastructure)).await;
    world.sql("UPDATE operation SET status = 5 WHERE operation_id = ?", (&one,)).await;
    assert_eq!(told(world.store(), fail(batch, "settler")).await, "settled");
    assert_eq!(world.count("operation WHERE status = 5").await, 1);
    assert_eq!(world.count("merge_batch_request WHERE batch_id IS NULL").await, 1);
}
