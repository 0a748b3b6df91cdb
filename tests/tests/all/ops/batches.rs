//! abort, requeue, unblock.

use std::time::Duration;

use adapters::forge::gitlab::{GitLab, GitLabOptions};
use adapters::relay::Relay;
use adapters::settlement::Progress;
use local::gitlab::{MrState, PipelinePlan};
use muster_tests::deadline::until;
use muster_tests::journey::{Journey, Published};
use muster_tests::{OPERATOR, block, grant, revoke};
use serde_json::{Value, json};
use shared::ids::BatchId;

use super::{already, order, order_by, refused, rehearsed_then_done};

/// A batch of so many grants whose pipeline never ends.
async fn hanging(journey: &Journey, subjects: &[&str]) -> BatchId {
    journey.forge.set_pipeline(PipelinePlan::Hang);
    for subject in subjects {
        journey.world.admitted(grant(subject, "db")).await;
    }
    journey.claimed().await
}

async fn statuses(journey: &Journey) -> Vec<i64> {
    journey.world.rows::<(i64,)>("SELECT status FROM operation ORDER BY operation_id", ()).await.into_iter().map(|(one,)| one).collect()
}

/// A relay whose forge does not answer.
pub(super) fn silent(journey: &Journey) -> Relay<GitLab, Published> {
    let limit = Duration::from_millis(500);
    let options = GitLabOptions { base_url: "http://127.0.0.1:1".into(), token: "t".into(), connect_timeout: limit, call_timeout: limit };
    let forge = GitLab::new(options).expect("a well-formed address");
    Relay { store: journey.world.store(), forge, outbound: Published::default() }
}

#[tokio::test]
async fn an_aborted_batch_rejects_its_members_and_closes_its_merge_request() {
    let journey = Journey::new().await;
    let batch = hanging(&journey, &["alice", "bob"]).await;
    let fields = json!({ "batch_id": batch });
    let done = rehearsed_then_done(&journey, "abort", fields.clone()).await;
    assert_eq!(
        (&done["settlement"], &done["after"]["status"], &done["after"]["code"]),
        (&json!("failed"), &json!("FAILED"), &json!("aborted"))
    );
    assert_eq!(done["before"]["status"], "RUNNING", "{done}");
    assert_eq!(statuses(&journey).await, [4, 4]);
    assert_eq!(journey.binding_of("alice", "db").await, "REJECTED");
    assert_eq!(journey.forge.merge_requests()[0].state, MrState::Closed);
    let message: String = journey.world.scalar("SELECT message FROM operation LIMIT 1", ()).await;
    assert!(message.contains(&format!("aborted by {OPERATOR}: because of a test")), "{message}");
    already(&journey, "abort", fields.clone()).await;
    refused(&journey, "requeue", fields.clone(), "is FAILED").await;
    refused(&journey, "unblock", fields, "is FAILED").await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn the_members_of_a_requeued_batch_wait_again() {
    let journey = Journey::new().await;
    let batch = hanging(&journey, &["alice", "bob"]).await;
    let done = rehearsed_then_done(&journey, "requeue", json!({ "batch_id": batch.0 })).await;
    assert_eq!((&done["settlement"], &done["after"]["code"]), (&json!("failed"), &json!("requeued")), "{done}");
    assert_eq!(statuses(&journey).await, [1, 1]);
    already(&journey, "requeue", json!({ "batch_id": batch })).await;
    refused(&journey, "abort", json!({ "batch_id": batch }), "is FAILED").await;
    journey.forge.set_pipeline(PipelinePlan::pass(Duration::from_millis(50)));
    let batch = journey.claimed().await;
    journey.settle_until(batch, Progress::Succeeded).await;
    assert_eq!(statuses(&journey).await, [3, 3]);
    refused(&journey, "abort", json!({ "batch_id": batch }), "is SUCCEEDED").await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn an_order_stands_while_the_forge_is_silent_and_the_sweep_carries_it_out() {
    let journey = Journey::new().await;
    let batch = hanging(&journey, &["alice"]).await;
    let done = order_by(&silent(&journey), "abort", json!({ "batch_id": batch })).await;
    assert_eq!((&done["outcome"], &done["settlement"]), (&json!("done"), &json!("unreachable")), "{done}");
    assert_eq!((&done["after"]["status"], &done["after"]["fail_code"]), (&json!("RUNNING"), &json!("aborted")), "{done}");
    already(&journey, "abort", json!({ "batch_id": batch })).await;
    refused(&journey, "requeue", json!({ "batch_id": batch }), "is failing already (code aborted)").await;
    refused(&journey, "unblock", json!({ "batch_id": batch }), "is failing already (code aborted)").await;
    let later = journey.runner_in(120).await;
    until("the abort", async || {
        let _ = sweep::handle(&later, json!({}), muster_tests::journey::stop_at()).await.expect("a sweep always answers");
        (statuses(&journey).await == [4]).then_some(())
    })
    .await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn what_has_merged_before_it_is_aborted_is_merged() {
    let journey = Journey::new().await;
    journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    until("the merge", async || (journey.forge.merge_requests()[0].state == MrState::Merged).then_some(())).await;
    let done = order(&journey, "abort", json!({ "batch_id": batch })).await;
    assert_eq!(
        (&done["outcome"], &done["settlement"], &done["after"]["status"]),
        (&json!("done"), &json!("succeeded"), &json!("SUCCEEDED")),
        "{done}"
    );
    assert_eq!(statuses(&journey).await, [3]);
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn an_unblocked_batch_runs_on_and_is_armed_anew() {
    let journey = Journey::new().await;
    let batch = hanging(&journey, &["alice"]).await;
    let fields = json!({ "batch_id": batch });
    already(&journey, "unblock", fields.clone()).await;
    let _ = journey.world.run(&block(batch)).await;
    let _ = journey.settle(batch).await;
    until("the disarming", async || {
        journey.sweep().await;
        (!journey.forge.merge_requests()[0].auto_merge).then_some(())
    })
    .await;
    let done = rehearsed_then_done(&journey, "unblock", fields.clone()).await;
    assert_eq!((&done["before"]["status"], &done["after"]["status"]), (&json!("BLOCKED"), &json!("RUNNING")), "{done}");
    until("the arming", async || {
        journey.sweep().await;
        journey.forge.merge_requests()[0].auto_merge.then_some(())
    })
    .await;
    already(&journey, "unblock", fields).await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_blocked_batch_can_be_aborted() {
    let journey = Journey::new().await;
    journey.world.sql("UPDATE merge_partition SET max_wait_s = 0", ()).await;
    journey.world.admitted(grant("zoe", "db")).await;
    let batch = journey.claimed().await;
    journey.settle_until(batch, Progress::Succeeded).await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    journey.world.admitted(revoke("zoe", "db")).await;
    let batch = journey.claimed().await;
    let _ = journey.world.run(&block(batch)).await;
    let done = rehearsed_then_done(&journey, "abort", json!({ "batch_id": batch })).await;
    assert_eq!((&done["before"]["status"], &done["after"]["status"]), (&json!("BLOCKED"), &json!("FAILED")), "{done}");
    assert_eq!(journey.binding_of("zoe", "db").await, "ACTIVE", "a rejected revoke leaves the access as it was");
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_batch_that_is_not_there_is_named() {
    let journey = Journey::new().await;
    for action in ["abort", "requeue", "unblock"] {
        let answer = refused(&journey, action, json!({ "batch_id": "4711" }), "no batch 4711").await;
        assert_eq!(answer["before"], Value::Null);
    }
}

#[tokio::test]
async fn an_operator_with_the_longest_name_can_abort() {
    let journey = Journey::new().await;
    let batch = hanging(&journey, &["alice"]).await;
    let name = "x".repeat(255);
    let answer = order(&journey, "abort", json!({ "batch_id": batch, "actor": name, "reason": "y".repeat(255) })).await;
    assert_eq!((&answer["outcome"], &answer["settlement"]), (&json!("done"), &json!("failed")), "{answer}");
    let message: String = journey.world.scalar("SELECT message FROM operation", ()).await;
    assert!(message.contains(&name) && message.contains("yyy"), "{message}");
}
