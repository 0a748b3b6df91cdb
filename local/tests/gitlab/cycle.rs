//! From a commit to the merged branch.

use std::time::Duration;

use local::gitlab::PipelinePlan;
use serde_json::{Value, json};

use crate::forge::{Forge, state, status};

const MESSAGE: &str = "Merge round 1\n\nMuster-Batch: 0a0b\n";

#[tokio::test]
async fn an_armed_merge_request_merges_when_its_pipeline_passes() {
    let forge = Forge::with(PipelinePlan::pass(Duration::from_millis(60))).await;
    let base = forge.head("main");
    let sha = forge.commit("muster/default/0a0b", "grants/ann.json", "{}\n").await;
    let opened = forge
        .post("/projects/7/merge_requests", json!({ "source_branch": "muster/default/0a0b", "target_branch": "main", "title": "Round 1" }))
        .await;
    assert_eq!((opened.status, status(&opened.body), &opened.body["sha"]), (201, "preparing", &Value::Null));
    let iid = opened.body["iid"].as_u64().unwrap();
    assert_eq!(forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await.status, 405, "arming too early");

    forge.wait(iid, |found| status(found) == "ci_still_running").await;
    let body = json!({ "sha": sha, "auto_merge": true, "merge_when_pipeline_succeeds": true, "merge_commit_message": MESSAGE });
    let armed = forge.merge(iid, body).await;
    assert_eq!((armed.status, &armed.body["merge_when_pipeline_succeeds"], state(&armed.body)), (200, &json!(true), "opened"));

    let merged = forge.wait(iid, |found| state(found) == "merged").await;
    assert_eq!(merged["merge_commit_sha"], json!(forge.head("main")));
    assert_eq!(merged["head_pipeline"]["status"], json!("success"));
    let log = forge.standin.git(&["log", "--format=%P|%B", "-1", "main"]).unwrap();
    assert_eq!(log.trim_end(), format!("{base} {sha}|{}", MESSAGE.trim_end()));
    assert_eq!(forge.standin.git(&["show", "main:grants/ann.json"]).unwrap(), "{}");
}

#[tokio::test]
async fn a_merge_request_steps_from_preparing_to_mergeable_by_being_read() {
    let forge = Forge::passing().await;
    forge.standin.set_knobs(|knobs| knobs.check_step_ms = 60_000);
    forge.commit("round", "a.json", "{}").await;
    forge.post("/projects/:id/merge_requests", json!({ "source_branch": "round", "target_branch": "main", "title": "r" })).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(status(&forge.merge_request(1).await).to_owned());
    }
    assert_eq!(seen, ["preparing", "unchecked", "checking"]);
    forge.wait(1, |found| status(found) == "mergeable").await;
}

#[tokio::test]
async fn a_failed_pipeline_stops_the_merge_and_a_hanging_one_delays_it() {
    let forge = Forge::with(PipelinePlan::fail(Duration::from_millis(5))).await;
    let (failed, sha) = forge.ready("one", "ci_must_pass").await;
    forge.wait(failed, |found| found["head_pipeline"]["status"] == "failed").await;
    assert_eq!(forge.merge(failed, json!({ "sha": sha, "auto_merge": true })).await.status, 405);

    forge.standin.set_pipeline(PipelinePlan::Hang);
    let (hanging, sha) = forge.ready("two", "ci_still_running").await;
    assert_eq!(forge.merge(hanging, json!({ "sha": sha, "auto_merge": true })).await.status, 200);
    let pipeline = forge.wait(hanging, |found| found["head_pipeline"]["status"] == "running").await["head_pipeline"]["id"].clone();
    let cancelled = forge.post(&format!("/projects/:id/pipelines/{pipeline}/cancel"), json!({})).await;
    assert_eq!((cancelled.status, &cancelled.body["status"]), (200, &json!("canceled")));
    assert_eq!(state(&forge.merge_request(hanging).await), "opened");
}

#[tokio::test]
async fn only_the_merge_request_with_the_bad_path_or_content_fails() {
    let after = Duration::from_millis(5);
    let forge = Forge::with(PipelinePlan::FailIfPath { substring: "bad".to_owned(), after }).await;
    let (bad, _) = forge.ready("bad-one", "ci_must_pass").await;
    forge.wait(bad, |found| found["head_pipeline"]["status"] == "failed").await;
    forge.ready("good", "mergeable").await;

    forge.standin.set_pipeline(PipelinePlan::FailIfContent { substring: "root".to_owned(), after });
    forge.commit("rooted", "grants/c.json", "{\"role\":\"root\"}\n").await;
    let rooted = forge.open("rooted").await;
    forge.wait(rooted, |found| found["head_pipeline"]["status"] == "failed").await;
    forge.ready("plain", "mergeable").await;
}

#[tokio::test]
async fn without_a_pipeline_nothing_merges_unless_the_project_asks_for_none() {
    let forge = Forge::with(PipelinePlan::None).await;
    let (iid, sha) = forge.ready("round", "ci_must_pass").await;
    assert_eq!(forge.merge(iid, json!({ "sha": sha })).await.status, 405);
    assert_eq!(forge.merge_request(iid).await["head_pipeline"], Value::Null);

    forge.standin.set_knobs(|knobs| knobs.project.pipelines_must_succeed = false);
    let merged = forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    assert_eq!((merged.status, state(&merged.body)), (200, "merged"), "auto-merge with no pipeline at all merges at once");
}

#[tokio::test]
async fn a_target_that_moved_is_merged_three_ways() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    let pushed = forge.standin.push_as("alice", "main", &[("other.txt", Some("x\n"))], "By hand").await.unwrap();
    forge.wait(iid, |found| status(found) == "mergeable").await;
    assert_eq!(forge.merge(iid, json!({ "sha": sha })).await.status, 200);
    assert!(forge.on_target(&pushed) && forge.on_target(&sha));
    let files = forge.standin.git(&["ls-tree", "-r", "--name-only", "main"]).unwrap();
    assert_eq!(files, "README.md\ngrants/round.json\nother.txt");
}

#[tokio::test]
async fn a_conflict_is_seen_and_refused() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    forge.standin.push_as("alice", "main", &[("grants/round.json", Some("other\n"))], "By hand").await.unwrap();
    let found = forge.wait(iid, |found| status(found) == "conflict").await;
    assert_eq!((&found["has_conflicts"], &found["merge_status"]), (&json!(true), &json!("cannot_be_merged")));
    assert_eq!(forge.merge(iid, json!({ "sha": sha })).await.status, 405);
    assert!(!forge.on_target(&sha));
}

#[tokio::test]
async fn a_squash_puts_one_commit_on_the_target_and_the_source_branch_goes() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    let body = json!({ "sha": sha, "squash": true, "squash_commit_message": "All in one", "should_remove_source_branch": true });
    let merged = forge.merge(iid, body).await;
    assert_eq!(merged.status, 200);
    let squash = merged.body["squash_commit_sha"].as_str().unwrap();
    assert_eq!((forge.on_target(squash), forge.on_target(&sha)), (true, false));
    assert_eq!(forge.get("/projects/:id/repository/branches/round").await.status, 404);
    assert_eq!(forge.get(&format!("/projects/:id/repository/commits/{sha}")).await.status, 200, "kept by its merge request");
}

#[tokio::test]
async fn skip_ci_in_the_message_makes_a_skipped_pipeline() {
    let forge = Forge::passing().await;
    let body = json!({
        "branch": "round", "start_branch": "main", "commit_message": "Add [skip ci]",
        "actions": [{ "action": "create", "file_path": "a", "content": "a" }],
    });
    assert_eq!(forge.post("/projects/:id/repository/commits", body).await.status, 201);
    let iid = forge.open("round").await;
    let found = forge.wait(iid, |found| found["head_pipeline"]["status"] == "skipped").await;
    assert_eq!(status(&found), "ci_must_pass");
}
