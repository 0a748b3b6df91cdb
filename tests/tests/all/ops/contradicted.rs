//! abort and requeue of a batch that forge and Git cannot agree on.

use std::time::Duration;

use adapters::settlement::Progress;
use local::gitlab::{MrState, PipelinePlan};
use muster_tests::deadline::until;
use muster_tests::journey::Journey;
use muster_tests::{begin_fail, grant};
use serde_json::{Value, json};
use shared::ids::BatchId;
use shared::state::FailCause;

use super::batches::silent;
use super::{already, order, order_by, refused, rehearsed_then_done};

/// A batch that is failing, whose merge request says merged, and whose commit somebody took off the target branch.
async fn merged_and_taken_off(journey: &Journey) -> BatchId {
    let before = journey.forge.git(&["rev-parse", "main"]).expect("a head").trim().to_owned();
    journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    until("the merge", async || (journey.forge.merge_requests()[0].state == MrState::Merged).then_some(())).await;
    journey.forge.git(&["update-ref", "refs/heads/main", &before]).expect("a branch set back");
    let _ = journey.world.run(&begin_fail(batch, FailCause::Content)).await;
    batch
}

fn confirmed(batch: BatchId) -> Value {
    json!({ "batch_id": batch, "confirm_not_merged": true })
}

async fn member_state(journey: &Journey) -> String {
    let code: i64 = journey.world.scalar("SELECT status FROM operation LIMIT 1", ()).await;
    shared::state::OperationStatus::from_code(code).expect("a known state").name().to_owned()
}

#[tokio::test]
async fn a_batch_that_says_merged_and_is_not_there_is_requeued_on_an_operators_word() {
    let journey = Journey::new().await;
    let batch = merged_and_taken_off(&journey).await;
    assert_eq!(journey.settle(batch).await, Progress::Waiting, "never failed on this by itself");
    refused(&journey, "requeue", json!({ "batch_id": batch }), "confirm_not_merged").await;

    let done = rehearsed_then_done(&journey, "requeue", confirmed(batch)).await;

    assert_eq!((&done["before"]["status"], &done["after"]["status"]), (&json!("RUNNING"), &json!("FAILED")), "{done}");
    assert_eq!((&done["before"]["fail_code"], &done["after"]["code"]), (&json!("pipeline_failed"), &json!("requeued")), "{done}");
    assert_eq!(member_state(&journey).await, "WAITING", "requeue, whatever it was failing for");
    already(&journey, "requeue", confirmed(batch)).await;
    refused(&journey, "abort", confirmed(batch), "is FAILED").await;
    journey.world.assert_invariants().await;
    let batch = journey.claimed().await;
    journey.settle_until(batch, Progress::Succeeded).await;
    assert_eq!(member_state(&journey).await, "MERGED");
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_batch_that_says_merged_and_is_not_there_is_aborted_on_an_operators_word() {
    let journey = Journey::new().await;
    let batch = merged_and_taken_off(&journey).await;
    let done = rehearsed_then_done(&journey, "abort", confirmed(batch)).await;
    assert_eq!(done["after"]["status"], "FAILED", "{done}");
    assert_eq!((member_state(&journey).await.as_str(), journey.binding_of("alice", "db").await.as_str()), ("REJECTED", "REJECTED"));
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn no_word_counts_against_a_commit_on_the_target_branch() {
    let journey = Journey::new().await;
    journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    until("the merge", async || (journey.forge.merge_requests()[0].state == MrState::Merged).then_some(())).await;
    refused(&journey, "abort", confirmed(batch), "is on the target branch by commit").await;
    journey.settle_until(batch, Progress::Succeeded).await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn what_can_be_withdrawn_is_withdrawn_first() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    refused(&journey, "abort", confirmed(batch), "can still be withdrawn").await;
    assert_eq!(order(&journey, "abort", json!({ "batch_id": batch, "confirm_not_merged": false })).await["outcome"], "done");
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_batch_of_a_forge_that_is_gone_is_ended_on_an_operators_word_and_its_merge_request_withdrawn_if_it_comes_back() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    let done = order_by(&silent(&journey), "abort", confirmed(batch)).await;
    assert_eq!((&done["outcome"], &done["after"]["status"]), (&json!("done"), &json!("FAILED")), "{done}");
    assert_eq!(member_state(&journey).await, "REJECTED");
    assert_eq!(journey.forge.merge_requests()[0].state, MrState::Opened);
    let later = journey.runner_in(120).await;
    until("the withdrawal", async || {
        let _ = sweep::handle(&later, json!({}), muster_tests::journey::stop_at()).await.expect("a sweep always answers");
        (journey.forge.merge_requests()[0].state == MrState::Closed).then_some(())
    })
    .await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn what_merges_after_it_was_ended_on_an_operators_word_is_a_late_merge() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::pass(Duration::from_millis(1_500)));
    journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    let done = order_by(&silent(&journey), "abort", confirmed(batch)).await;
    assert_eq!(done["outcome"], "done", "{done}");
    until("the merge", async || (journey.forge.merge_requests()[0].state == MrState::Merged).then_some(())).await;
    let _ = journey.settle(batch).await;
    assert_eq!((member_state(&journey).await.as_str(), journey.binding_of("alice", "db").await.as_str()), ("MERGED", "ACTIVE"));
    journey.world.assert_invariants().await;
}
