//! From a request to `git log`, through the real handlers.

use std::time::Duration;

use adapters::settlement::Progress;
use local::gitlab::{Fault, PipelinePlan};
use muster_tests::deadline::until;
use muster_tests::journey::Journey;
use muster_tests::{World, grant, grant_of_file, revoke};
use serde_json::json;

#[tokio::test]
async fn what_waited_is_merged_as_one_merge_request_and_every_member_is_told() {
    let journey = Journey::new().await;
    let mut members = Vec::new();
    for subject in ["alice", "bob", "carol"] {
        members.push(journey.world.admitted(grant(subject, "db")).await);
    }
    let round = journey.round().await;
    assert_eq!((round["outcome"].as_str(), round["members"].as_array().map(Vec::len)), (Some("claimed"), Some(3)), "{round}");
    assert_eq!(round["merge_request"]["iid"], "1", "{round}");
    let batch = serde_json::from_value(round["batch_id"].clone()).expect("a batch id");
    journey.settle_until(batch, Progress::Succeeded).await;
    for member in &members {
        assert_eq!(journey.status_of(member).await, "MERGED");
    }
    assert_eq!(journey.binding_of("alice", "db").await, "ACTIVE");
    let file = journey.file_on_main("access/db/alice.json").expect("the file is on main");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&file).expect("JSON"),
        json!({"subject_id": "alice", "target_key": "db", "attributes": {}})
    );
    assert_eq!(journey.forge.merge_requests().len(), 1);
    let log = journey.forge.git(&["log", "--format=%B", "main"]).expect("a log");
    let token: String = journey.world.scalar("SELECT LOWER(HEX(claim_token)) FROM merge_batch", ()).await;
    assert!(log.contains(&format!("Muster-Batch: {token}")), "{log}");
    assert_eq!(journey.settle(batch).await, Progress::Ended);
    journey.sweep().await;
    let merged = journey.relay.outbound.types().iter().filter(|kind| *kind == "request.merged").count();
    assert_eq!(merged, 3);
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_revoke_deletes_what_its_grant_created() {
    let journey = Journey::new().await;
    journey.world.admitted(grant_of_file("alice", "db", "access/custom/alice.txt", "yes")).await;
    let batch = journey.claimed().await;
    journey.settle_until(batch, Progress::Succeeded).await;
    assert_eq!(journey.file_on_main("access/custom/alice.txt").as_deref(), Some("yes"));
    let taken_back = journey.world.admitted(revoke("alice", "db")).await;
    let batch = journey.claimed().await;
    journey.settle_until(batch, Progress::Succeeded).await;
    assert_eq!(journey.file_on_main("access/custom/alice.txt"), None);
    assert_eq!((journey.status_of(&taken_back).await.as_str(), journey.binding_of("alice", "db").await.as_str()), ("MERGED", "CLOSED"));
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_change_that_is_on_the_branch_already_needs_no_merge_request() {
    let journey = Journey::new().await;
    journey.forge.push_as("dave", "main", &[("access/x", Some("same"))], "by hand").await.expect("a push");
    let request = journey.world.admitted(grant_of_file("alice", "db", "access/x", "same")).await;
    let batch = journey.claimed().await;
    assert_eq!(journey.settle(batch).await, Progress::Ended);
    assert_eq!(journey.status_of(&request).await, "MERGED");
    let code: String = journey.world.scalar("SELECT code FROM merge_batch", ()).await;
    assert_eq!((code.as_str(), journey.forge.merge_requests().len()), ("already_applied", 0));
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn one_bad_member_alone_is_convicted_with_the_evidence() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::fail(Duration::from_millis(50)));
    let request = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    journey.settle_until(batch, Progress::Failed).await;
    assert_eq!((journey.status_of(&request).await.as_str(), journey.binding_of("alice", "db").await.as_str()), ("FAILED", "FAILED"));
    let message: String = journey.world.scalar("SELECT message FROM operation", ()).await;
    assert!(message.contains("pipeline_failed") && message.contains("/pipelines/"), "{message}");
    assert_eq!(journey.file_on_main("access/db/alice.json"), None);
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_content_failure_of_several_is_bisected_until_one_alone_is_convicted() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::FailIfPath { substring: "bad".into(), after: Duration::from_millis(20) });
    journey.world.sql("UPDATE merge_partition SET max_requests = 32", ()).await;
    let mut requests = Vec::new();
    for number in 0..32 {
        let subject = if number == 19 { "bad".to_owned() } else { format!("good-{number}") };
        requests.push((number == 19, journey.world.admitted(grant(&subject, "db")).await));
    }
    let mut pipelines = 0;
    loop {
        let round = journey.round().await;
        if round["outcome"] == "nothing_to_claim" {
            break;
        }
        assert_eq!(round["outcome"], "claimed", "{round}");
        pipelines += 1;
        assert!(pipelines <= 11, "more than 11 pipelines for one bad request of 32");
        let batch = serde_json::from_value(round["batch_id"].clone()).expect("a batch id");
        until("the end of a batch", async || (journey.settle(batch).await != Progress::Waiting).then_some(())).await;
        journey.world.assert_invariants().await;
    }
    for (is_bad, request) in &requests {
        assert_eq!(journey.status_of(request).await, if *is_bad { "FAILED" } else { "MERGED" });
    }
    let asked = journey.relay.outbound.types().iter().filter(|kind| *kind == "start_round").count();
    assert!(asked >= 4, "a bisection does not wait for the schedule: {asked} follow-up rounds");
}

#[tokio::test]
async fn a_merge_after_the_failure_is_taken_back_into_the_books() {
    let journey = Journey::with_world(World::new().await.with_target("db", "default", Some(1)).await).await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    let request = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    journey.forge.close_as(1, "dave").await.expect("closed");
    journey.settle_until(batch, Progress::Failed).await;
    assert_eq!(journey.status_of(&request).await, "REJECTED");
    // The seat is free again and somebody else takes it; then a person reopens the merge request and merges it.
    let other = journey.world.admitted(grant("bob", "db")).await;
    journey.forge.reopen_as(1, "dave").await.expect("reopened");
    assert!(journey.forge.merge_as(1, "dave").await.expect("an answer"), "merged");
    assert_eq!(journey.settle(batch).await, Progress::Ended);
    assert_eq!((journey.status_of(&request).await.as_str(), journey.binding_of("alice", "db").await.as_str()), ("MERGED", "ACTIVE"));
    assert_eq!(journey.status_of(&other).await, "WAITING");
    let used: u64 = journey.world.scalar("SELECT used FROM target WHERE target_key = 'db'", ()).await;
    assert_eq!(used, 2, "the seat is retaken above the capacity");
    let found: u64 = journey.world.count("merge_batch WHERE status = 3 AND late_merged_at IS NOT NULL AND merge_sha IS NOT NULL").await;
    assert_eq!(found, 1);
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_person_who_closes_the_merge_request_rejects_its_members() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    let request = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    journey.forge.close_as(1, "dave").await.expect("closed");
    journey.settle_until(batch, Progress::Failed).await;
    assert_eq!((journey.status_of(&request).await.as_str(), journey.binding_of("alice", "db").await.as_str()), ("REJECTED", "REJECTED"));
    let message: String = journey.world.scalar("SELECT message FROM operation", ()).await;
    assert!(message.contains("closed by dave"), "{message}");
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_close_that_loses_against_the_merge_is_a_success() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    let request = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    journey.forge.set_knobs(|knobs| knobs.closed_yet_merged = 1);
    journey.forge.close_as(1, "dave").await.expect("closed");
    journey.settle_until(batch, Progress::Succeeded).await;
    assert_eq!(journey.status_of(&request).await, "MERGED");
    assert!(journey.file_on_main("access/db/alice.json").is_some());
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_hanging_pipeline_is_timed_out_without_blame_and_its_members_wait_again() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    let request = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    assert_eq!(journey.settle(batch).await, Progress::Waiting);
    let later = journey.runner_in(7200).await;
    let mut report = json!(null);
    for _ in 0..5 {
        let swept = sweep::handle(&later, json!({}), muster_tests::journey::stop_at()).await.expect("a sweep always answers");
        report = serde_json::to_value(swept).expect("JSON");
        if report["batches"]["failed"] == 1 {
            break;
        }
    }
    assert_eq!(report["batches"]["failed"], 1, "{report}");
    assert_eq!((journey.status_of(&request).await.as_str(), journey.binding_of("alice", "db").await.as_str()), ("WAITING", "APPLYING"));
    assert_eq!(journey.forge.merge_requests()[0].state, local::gitlab::MrState::Closed);
    journey.forge.set_pipeline(PipelinePlan::pass(Duration::from_millis(50)));
    let batch = journey.claimed().await;
    journey.settle_until(batch, Progress::Succeeded).await;
    assert_eq!(journey.status_of(&request).await, "MERGED");
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn lost_answers_of_the_forge_make_no_second_commit_and_no_second_merge_request() {
    let journey = Journey::new().await;
    for (method, path) in [("POST", "repository/commits"), ("POST", "merge_requests"), ("PUT", "/merge")] {
        journey.forge.inject(Fault::lost_answer(method, path));
    }
    let request = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    journey.settle_until(batch, Progress::Succeeded).await;
    assert_eq!(journey.status_of(&request).await, "MERGED");
    assert_eq!(journey.forge.merge_requests().len(), 1);
    let ours = journey.forge.git(&["log", "--no-merges", "--format=%s", "main"]).expect("a log");
    assert_eq!(ours.lines().filter(|line| line.starts_with("Muster:")).count(), 1, "{ours}");
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_commit_of_a_stranger_on_our_branch_is_never_merged_by_us() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    let request = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    let branch = journey.forge.merge_requests()[0].source_branch.clone();
    journey.forge.push_as("mallory", &branch, &[("access/evil", Some("x"))], "mine").await.expect("a push");
    journey.settle_until(batch, Progress::Blocked).await;
    assert_eq!(journey.status_of(&request).await, "IN_BATCH");
    assert!(!journey.forge.merge_requests()[0].auto_merge);
    assert_eq!(journey.file_on_main("access/evil"), None);
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn everything_works_without_a_single_webhook() {
    let journey = Journey::new().await;
    let request = journey.world.admitted(grant("alice", "db")).await;
    journey.claimed().await;
    until("a settlement by the sweep alone", async || {
        journey.sweep().await;
        (journey.status_of(&request).await == "MERGED").then_some(())
    })
    .await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn an_orphan_on_our_prefix_is_withdrawn() {
    let journey = Journey::new().await;
    let branch = format!("muster/default/{}", "ab".repeat(16));
    journey.forge.push_as("muster-bot", &branch, &[("access/old", Some("x"))], "left over").await.expect("a push");
    let client = reqwest::Client::new();
    let url = format!("{}/api/v4/projects/7/merge_requests", journey.forge.url());
    let body = json!({ "source_branch": branch, "target_branch": "main", "title": "left over" });
    let answer = client.post(url).header("PRIVATE-TOKEN", "journey-token").json(&body).send().await.expect("an answer");
    assert_eq!(answer.status(), 201);
    let report = journey.sweep().await;
    assert_eq!(report["orphans_withdrawn"], 1, "{report}");
    assert_eq!(journey.forge.merge_requests()[0].state, local::gitlab::MrState::Closed);
}

#[tokio::test]
async fn a_round_costs_few_calls_of_the_forge() {
    let journey = Journey::new().await;
    for number in 0..250 {
        journey.world.admitted(grant(&format!("s{number}"), "db")).await;
    }
    journey.world.sql("UPDATE merge_partition SET max_requests = 300, content_attempts = 10", ()).await;
    journey.forge.clear_calls();
    let batch = journey.claimed().await;
    let opened = journey.forge.calls().len();
    journey.settle_until(batch, Progress::Succeeded).await;
    let limit = 8 + 250 / 100;
    assert!(opened <= limit, "{opened} calls to open, at most {limit}: {:#?}", journey.forge.calls());
}
