//! What a runner records while its batch runs: the start and who cannot be rendered, the merge request, its progress.

use muster_tests::*;
use serde_json::json;
use shared::ids::BatchId;
use shared::state::{BatchStatus, FailCause};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::deliveries::{LeaseDeliveries, LeaseToken, Scope};
use shared::transactions::note_progress::{NoteProgress, NoteProgressOutcome};
use shared::transactions::record_merge_request::{RecordMergeRequest, RecordMergeRequestOutcome};
use shared::transactions::record_render::{Expelled, RecordRender, RecordRenderOutcome};

async fn batch_of(world: &World, batch: BatchId) -> String {
    let sql = "SELECT CONCAT_WS(' ', status, IFNULL(LEFT(start_sha, 4), '-'), IFNULL(mr_iid, '-'), IFNULL(LEFT(head_sha, 4), '-'), \
               IFNULL(code, '-'), step, version) FROM merge_batch WHERE id = ?";
    world.scalar(sql, (batch.0,)).await
}

fn expelled(operation: &shared::ids::OperationId) -> Expelled {
    Expelled { operation: operation.clone(), code: "base_mismatch", reason: "access/x is not what its base says".to_owned() }
}

#[tokio::test]
async fn the_start_is_stored_once() {
    let world = World::with_waiting(2).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&record_render(batch)).await, RecordRenderOutcome::Recorded { left: 2 });
    assert_eq!(batch_of(&world, batch).await, "1 5555 - - - rendered 2");
    let before = world.snapshot().await;
    let later = RecordRender { start_sha: "6".repeat(40), by: "runner-2".to_owned(), ..record_render(batch) };
    assert_eq!(world.run(&later).await, RecordRenderOutcome::Preempted);
    assert_eq!(world.run(&record_render(batch)).await, RecordRenderOutcome::Preempted);
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn a_member_that_cannot_be_rendered_is_rejected_before_the_first_forge_write() {
    let world = World::new().await.with_target("db", "default", Some(10)).await;
    let stays = world.admitted(grant("alice", "db")).await;
    let goes = world.admitted(grant("bob", "db")).await;
    let batch = world.claimed("round-1").await;
    let unit = RecordRender { expelled: vec![expelled(&goes)], ..record_render(batch) };
    assert_eq!(world.run(&unit).await, RecordRenderOutcome::Recorded { left: 1 });
    let operations =
        "SELECT CONCAT_WS(' ', operation_id, status, IFNULL(code, '-'), IFNULL(message, '-')) FROM operation ORDER BY operation_id";
    let expected = [format!("{stays} 2 - -"), format!("{goes} 4 base_mismatch access/x is not what its base says")];
    assert_eq!(world.rows::<String>(operations, ()).await, expected);
    let bindings = "SELECT CONCAT_WS(' ', subject_id, status) FROM binding ORDER BY subject_id";
    assert_eq!(world.rows::<String>(bindings, ()).await, ["alice 1", "bob 4"]);
    assert_eq!(world.scalar::<u64>("SELECT used FROM target", ()).await, 1);
    assert_eq!(world.count("merge_batch_request").await, 1);
    assert_eq!(world.count("merge_batch_member WHERE outcome = 6").await, 1);
    assert_eq!(world.count(&format!("outbox WHERE dedup_key LIKE 'request.rejected:{goes}:%'")).await, 1);
    world.assert_invariants().await;
    // What is left goes on and lands.
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    assert_eq!(world.rows::<String>(bindings, ()).await, ["alice 2", "bob 4"]);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_batch_of_which_nobody_is_left_ends_and_frees_the_slot() {
    let world = World::with_waiting(2).await;
    let batch = world.claimed("round-1").await;
    let unit = RecordRender { expelled: world.waiting.iter().map(expelled).collect(), ..record_render(batch) };
    assert_eq!(world.run(&unit).await, RecordRenderOutcome::Emptied);
    assert_eq!(batch_of(&world, batch).await, "3 5555 - - empty failed 3");
    assert_eq!(world.count("operation WHERE status = 4").await, 2);
    assert_eq!(world.effects_of(batch).await, ["batch.claimed 1", "batch.failed 3", "open_merge_request 1"]);
    world.assert_invariants().await;
    world.admitted(grant("next", "db")).await;
    world.claimed("round-2").await;
}

#[tokio::test]
async fn the_first_merge_request_is_stored_and_armed_and_its_effect_is_delivered() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    let lease = LeaseToken::random();
    let leased = world.run(&LeaseDeliveries { scope: Scope::Batch(batch), effects: 10, events: 10, token: lease }).await;
    let open = leased.into_iter().find(|one| one.kind == "open_merge_request").expect("the wish for a merge request").key;
    let unit = RecordMergeRequest { delivery: (open.clone(), lease), ..record_merge_request(batch, 7) };
    assert_eq!(world.run(&unit).await, RecordMergeRequestOutcome::Recorded);
    assert_eq!(batch_of(&world, batch).await, "1 - 7 eeee - merge_request_opened 2");
    assert_eq!(world.effects_of(batch).await, ["arm_merge 2", "batch.claimed 1", "open_merge_request 1"]);
    let delivered = "SELECT CONCAT_WS(' ', dedup_key, attempts) FROM outbox WHERE delivered_at IS NOT NULL AND lease_token IS NULL";
    assert_eq!(world.rows::<String>(delivered, ()).await, [format!("{open} 1")]);
    world.assert_invariants().await;
}

#[tokio::test]
async fn the_same_merge_request_again_is_its_repetition() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&record_merge_request(batch, 7)).await, RecordMergeRequestOutcome::Recorded);
    let before = world.snapshot().await;
    assert_eq!(world.run(&record_merge_request(batch, 7)).await, RecordMergeRequestOutcome::AlreadyRecorded);
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn a_lease_that_ran_out_does_not_mark_the_effect_of_another_as_delivered() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    let _ = world.run(&LeaseDeliveries { scope: Scope::Batch(batch), effects: 10, events: 10, token: LeaseToken::random() }).await;
    let key: String = world.scalar("SELECT dedup_key FROM outbox WHERE kind = 'open_merge_request'", ()).await;
    let unit = RecordMergeRequest { delivery: (key, LeaseToken::random()), ..record_merge_request(batch, 7) };
    assert_eq!(world.run(&unit).await, RecordMergeRequestOutcome::Recorded);
    assert_eq!(world.count("outbox WHERE delivered_at IS NOT NULL").await, 0);
}

#[tokio::test]
async fn a_merge_request_that_comes_after_its_batch_began_to_fail_is_stored_and_withdrawn() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&record_merge_request(batch, 7)).await, RecordMergeRequestOutcome::Preempted);
    assert_eq!(batch_of(&world, batch).await, "1 - 7 eeee - failing 3");
    let withdrawals = "SELECT CAST(payload AS CHAR) FROM outbox WHERE kind = 'withdraw_merge_request' ORDER BY dedup_key";
    let payloads: Vec<serde_json::Value> =
        world.rows::<String>(withdrawals, ()).await.iter().map(|text| serde_json::from_str(text).expect("JSON")).collect();
    assert_eq!(payloads, [json!({ "mr_iid": null }), json!({ "mr_iid": 7 })]);
    assert_eq!(world.count("outbox WHERE kind = 'arm_merge'").await, 0);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_merge_request_that_comes_after_its_batch_has_settled_is_stored_and_withdrawn() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler-2")).await, SettleOutcome::Settled);
    assert_eq!(world.run(&record_merge_request(batch, 7)).await, RecordMergeRequestOutcome::Preempted);
    assert_eq!(batch_of(&world, batch).await, "3 - 7 eeee forge_down failed 4");
    assert_eq!(world.count("outbox WHERE kind = 'withdraw_merge_request' AND JSON_EXTRACT(payload, '$.mr_iid') = 7").await, 1);
    // Once is enough.
    let before = world.snapshot().await;
    assert_eq!(world.run(&record_merge_request(batch, 7)).await, RecordMergeRequestOutcome::Preempted);
    assert_eq!(world.snapshot().await, before);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_merge_request_that_comes_after_its_batch_was_blocked_or_found_applied_is_stored_and_withdrawn() {
    for status in [BatchStatus::Blocked, BatchStatus::Succeeded] {
        let world = World::with_waiting(1).await;
        let batch = world.claimed("round-1").await;
        let settled = match status {
            BatchStatus::Blocked => world.run(&block(batch)).await,
            _ => world.run(&succeed(batch, "settler-1")).await,
        };
        assert_eq!(settled, SettleOutcome::Settled);
        assert_eq!(world.run(&record_merge_request(batch, 7)).await, RecordMergeRequestOutcome::Preempted, "{status}");
        assert_eq!(world.scalar::<u64>("SELECT mr_iid FROM merge_batch", ()).await, 7, "{status}");
        assert_eq!(world.count("outbox WHERE kind = 'arm_merge'").await, 0, "{status}");
        let withdrawn = "outbox WHERE kind = 'withdraw_merge_request' AND JSON_EXTRACT(payload, '$.mr_iid') = 7";
        assert_eq!(world.count(withdrawn).await, 1, "{status}");
        world.assert_invariants().await;
    }
}

#[tokio::test]
async fn progress_moves_only_on_a_new_step() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    let moved = "SELECT CAST(progress_at AS CHAR) FROM merge_batch";
    let claimed_at: String = world.scalar(moved, ()).await;
    assert_eq!(world.run(&NoteProgress { batch, step: "pipeline_running" }).await, NoteProgressOutcome::Moved);
    let first: String = world.scalar(moved, ()).await;
    assert!(first > claimed_at);
    let before = world.snapshot().await;
    assert_eq!(world.run(&NoteProgress { batch, step: "pipeline_running" }).await, NoteProgressOutcome::Unchanged);
    assert_eq!(world.snapshot().await, before);
    assert_eq!(world.run(&NoteProgress { batch, step: "pipeline_success" }).await, NoteProgressOutcome::Moved);
    assert!(world.scalar::<String>(moved, ()).await > first);
    assert_eq!(BatchStatus::Running.code(), world.scalar::<i64>("SELECT status FROM merge_batch", ()).await);
}
