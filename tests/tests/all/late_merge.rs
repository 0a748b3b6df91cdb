//! I8: what is on the target branch is MERGED, although its batch was given up before anybody saw it.

use muster_tests::proxy::Cut;
use muster_tests::*;
use shared::ids::{BatchId, OperationId};
use shared::state::{BatchStatus, FailCause};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::reconcile_late_merge::{ReconcileLateMerge, ReconcileLateMergeOutcome};
use shared::transactions::record_render::{Expelled, RecordRender, RecordRenderOutcome};
use shared::transactions::withdraw::WithdrawOutcome;

fn late_merge(batch: BatchId) -> ReconcileLateMerge {
    ReconcileLateMerge { batch, by: "sweep-1".to_owned(), merge_sha: "b".repeat(40) }
}

async fn failed(world: &World, batch: BatchId, cause: FailCause) {
    assert_eq!(world.run(&begin_fail(batch, cause)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler")).await, SettleOutcome::Settled);
}

/// Operation, relationship and seats in one line.
async fn state(world: &World, operation: &OperationId) -> String {
    let sql = "SELECT CONCAT_WS(' ', o.status, IFNULL(o.code, '-'), b.status, IF(b.operation_id = o.operation_id, 'its', 'another'), t.used) \
               FROM operation o JOIN binding b USING (subject_id, target_key) JOIN target t USING (target_key) WHERE o.operation_id = ?";
    world.scalar(sql, (operation,)).await
}

async fn world_with_one_seat() -> (World, OperationId, BatchId) {
    let world = World::new().await.with_target("db", "default", Some(1)).await;
    let operation = world.admitted(grant("alice", "db")).await;
    let batch = world.claimed("round-1").await;
    (world, operation, batch)
}

#[tokio::test]
async fn members_that_wait_again_are_merged_and_wait_no_more() {
    let world = World::with_waiting(3).await;
    let batch = world.claimed("round-1").await;
    failed(&world, batch, FailCause::Infrastructure).await;
    assert_eq!(world.run(&late_merge(batch)).await, ReconcileLateMergeOutcome::Reconciled { members: 3 });
    assert_eq!(world.count("merge_batch_request").await, 0);
    assert_eq!(world.count("operation WHERE status = 3 AND code = 'late_merge' AND settled_at IS NOT NULL").await, 3);
    assert_eq!(world.count("binding WHERE status = 2 AND granted_by_operation_id = operation_id").await, 3);
    let kept = "SELECT CONCAT_WS(' ', status, merge_sha, late_merged_at IS NOT NULL) FROM merge_batch";
    assert_eq!(world.scalar::<String>(kept, ()).await, format!("3 {} 1", "b".repeat(40)));
    assert_eq!(world.count("outbox WHERE dedup_key LIKE 'request.merged:%'").await, 3);
    assert_eq!(world.count("audit_record WHERE action = 'late_merge' AND actor = 'sweep-1'").await, 1);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_rejected_grant_takes_its_seat_back_even_above_the_capacity() {
    let (world, operation, batch) = world_with_one_seat().await;
    failed(&world, batch, FailCause::Rejected).await;
    let other = world.admitted(grant("bob", "db")).await;
    assert_eq!(world.run(&late_merge(batch)).await, ReconcileLateMergeOutcome::Reconciled { members: 1 });
    assert_eq!(state(&world, &operation).await, "3 late_merge 2 its 2");
    assert_eq!(state(&world, &other).await, "1 - 1 its 2");
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_convicted_grant_is_acquitted_and_keeps_the_seat_it_held() {
    let (world, operation, batch) = world_with_one_seat().await;
    failed(&world, batch, FailCause::Content).await;
    assert_eq!(state(&world, &operation).await, "5 pipeline_failed 5 its 1");
    assert_eq!(world.run(&late_merge(batch)).await, ReconcileLateMergeOutcome::Reconciled { members: 1 });
    assert_eq!(state(&world, &operation).await, "3 late_merge 2 its 1");
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_grant_that_was_withdrawn_since_is_merged_all_the_same() {
    let (world, operation, batch) = world_with_one_seat().await;
    failed(&world, batch, FailCause::Infrastructure).await;
    assert_eq!(world.run(&withdraw(&operation)).await, WithdrawOutcome::Withdrawn);
    assert_eq!(state(&world, &operation).await, "6 - 6 its 0");
    assert_eq!(world.run(&late_merge(batch)).await, ReconcileLateMergeOutcome::Reconciled { members: 1 });
    assert_eq!(state(&world, &operation).await, "3 late_merge 2 its 1");
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_rejected_revoke_closes_its_relationship_and_frees_the_seat() {
    let (world, _, batch) = world_with_one_seat().await;
    assert_eq!(world.run(&succeed(batch, "settler")).await, SettleOutcome::Settled);
    let operation = world.admitted(revoke("alice", "db")).await;
    let batch = world.claimed("round-2").await;
    failed(&world, batch, FailCause::Rejected).await;
    assert_eq!(state(&world, &operation).await, "4 closed_by_person 2 its 1");
    assert_eq!(world.run(&late_merge(batch)).await, ReconcileLateMergeOutcome::Reconciled { members: 1 });
    assert_eq!(state(&world, &operation).await, "3 late_merge 6 its 0");
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_relationship_that_was_applied_for_anew_is_left_to_the_new_request() {
    let (world, operation, batch) = world_with_one_seat().await;
    failed(&world, batch, FailCause::Rejected).await;
    let anew = world.admitted(grant("alice", "db")).await;
    assert_eq!(world.run(&late_merge(batch)).await, ReconcileLateMergeOutcome::Reconciled { members: 1 });
    assert_eq!(state(&world, &operation).await, "3 late_merge 1 another 1");
    assert_eq!(state(&world, &anew).await, "1 - 1 its 1");
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_relationship_that_is_applied_for_anew_meanwhile_is_left_to_the_new_request() {
    let (world, operation, batch) = world_with_one_seat().await;
    failed(&world, batch, FailCause::Rejected).await;
    let pause = probes::Pause::new("reconcile_late_merge", probes::At::Named("reconcile_late_merge.move_read_bindings"));
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&late_merge(batch)).await });
    pause.reached().await;
    let anew = world.admitted(grant("alice", "db")).await;
    pause.release();
    let outcome = running.await.expect("no panic").expect("an outcome");
    assert_eq!(outcome, ReconcileLateMergeOutcome::Reconciled { members: 1 });
    assert_eq!(state(&world, &operation).await, "3 late_merge 1 another 1");
    assert_eq!(state(&world, &anew).await, "1 - 1 its 1");
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_member_that_a_later_batch_has_is_left_to_that_batch() {
    let world = World::with_waiting(2).await;
    let first = world.claimed("round-1").await;
    failed(&world, first, FailCause::Infrastructure).await;
    let second = world.claimed("round-2").await;
    assert_eq!(world.run(&late_merge(first)).await, ReconcileLateMergeOutcome::Reconciled { members: 0 });
    assert_eq!(world.count(&format!("operation WHERE status = 2 AND batch_id = {second}")).await, 2);
    world.assert_invariants().await;
    assert_eq!(world.run(&succeed(second, "settler")).await, SettleOutcome::Settled);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_member_that_was_expelled_was_not_in_the_commit() {
    let world = World::with_waiting(2).await;
    let batch = world.claimed("round-1").await;
    let expelled = Expelled { operation: world.waiting[0].clone(), code: "base_mismatch", reason: "changed".to_owned() };
    let unit = RecordRender { expelled: vec![expelled], ..record_render(batch) };
    assert_eq!(world.run(&unit).await, RecordRenderOutcome::Recorded { left: 1 });
    failed(&world, batch, FailCause::Rejected).await;
    assert_eq!(world.run(&late_merge(batch)).await, ReconcileLateMergeOutcome::Reconciled { members: 1 });
    assert!(state(&world, &world.waiting[0]).await.starts_with("4 base_mismatch 4 its"));
    assert!(state(&world, &world.waiting[1]).await.starts_with("3 late_merge 2 its"));
    world.assert_invariants().await;
}

#[tokio::test]
async fn it_is_reconciled_once_and_only_after_its_batch_has_failed() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    let refused = async |batch: BatchId, outcome: ReconcileLateMergeOutcome| {
        let before = world.snapshot().await;
        assert_eq!(world.run(&late_merge(batch)).await, outcome);
        assert_eq!(world.snapshot().await, before);
    };
    refused(BatchId(4_000_000_000), ReconcileLateMergeOutcome::UnknownBatch).await;
    refused(batch, ReconcileLateMergeOutcome::NotFailed { status: BatchStatus::Running }).await;
    failed(&world, batch, FailCause::Infrastructure).await;
    assert_eq!(world.run(&late_merge(batch)).await, ReconcileLateMergeOutcome::Reconciled { members: 1 });
    refused(batch, ReconcileLateMergeOutcome::Known).await;
}

#[tokio::test]
async fn a_lost_commit_reconciles_once() {
    let world = World::with_waiting(2).await;
    let batch = world.claimed("round-1").await;
    failed(&world, batch, FailCause::Infrastructure).await;
    let (store, proxy) = world.store_behind(Cut::AfterServer, 1).await;
    let outcome = store.run(&late_merge(batch)).await.expect("an outcome");
    assert_eq!((outcome, proxy.left()), (ReconcileLateMergeOutcome::Known, 0));
    assert_eq!(world.count("outbox WHERE dedup_key LIKE 'request.merged:%'").await, 2);
    world.assert_invariants().await;
}
