//! Closes against merges, pushes against armed merges: who wins, and what the answers say.

use std::time::Duration;

use local::gitlab::PipelinePlan;
use serde_json::json;

use crate::forge::{Forge, state, status};

#[tokio::test]
async fn closing_an_armed_merge_request_disarms_it_for_good() {
    let forge = Forge::with(PipelinePlan::Hang).await;
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    let closed = forge.close(iid).await;
    assert_eq!((closed.status, state(&closed.body), &closed.body["merge_when_pipeline_succeeds"]), (200, "closed", &json!(false)));
    let reopened = forge.put(&format!("/projects/:id/merge_requests/{iid}"), json!({ "state_event": "reopen" })).await;
    assert_eq!((state(&reopened.body), &reopened.body["merge_when_pipeline_succeeds"]), ("opened", &json!(false)));
}

#[tokio::test]
async fn closing_a_merged_or_locked_merge_request_changes_nothing_and_says_200() {
    let forge = Forge::passing().await;
    let (merged, sha) = forge.ready("one", "mergeable").await;
    forge.merge(merged, json!({ "sha": sha })).await;
    let answer = forge.close(merged).await;
    assert_eq!((answer.status, state(&answer.body)), (200, "merged"));

    let (locked, sha) = forge.ready("two", "mergeable").await;
    forge.standin.set_knobs(|knobs| knobs.merge_takes_ms = 100);
    let (merge, close) = tokio::join!(forge.merge(locked, json!({ "sha": sha })), async {
        tokio::time::sleep(Duration::from_millis(40)).await;
        forge.close(locked).await
    });
    assert_eq!((close.status, state(&close.body)), (200, "locked"));
    assert_eq!((merge.status, state(&merge.body), forge.on_target(&sha)), (200, "merged", true));
}

#[tokio::test]
async fn a_close_can_lose_against_a_merge_that_nobody_reports() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    forge.standin.set_knobs(|knobs| knobs.closed_yet_merged = 1);
    let closed = forge.close(iid).await;
    assert_eq!((closed.status, state(&closed.body)), (200, "closed"));
    let found = forge.merge_request(iid).await;
    assert_eq!((state(&found), found["merge_commit_sha"].is_null(), forge.on_target(&sha)), ("closed", true, true));
}

#[tokio::test]
async fn a_merge_can_stay_locked_although_it_landed() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    forge.standin.set_knobs(|knobs| knobs.merges_stuck_locked = 1);
    assert_eq!(forge.merge(iid, json!({ "sha": sha })).await.status, 422);
    assert_eq!((state(&forge.merge_request(iid).await), forge.on_target(&sha)), ("locked", true));
    let locked = forge.get("/projects/:id/merge_requests?state=opened").await;
    assert_eq!(locked.body, json!([]), "locked ones are not among the open ones");
}

#[tokio::test]
async fn a_push_to_the_source_disarms_and_changes_the_head() {
    let forge = Forge::with(PipelinePlan::Hang).await;
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    let pushed = forge.standin.push_as("mallory", "round", &[("evil.txt", Some("x"))], "Mine").await.unwrap();
    let found = forge.wait(iid, |found| found["sha"] == json!(pushed)).await;
    assert_eq!(found["merge_when_pipeline_succeeds"], json!(false));
    let stale = forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    assert_eq!(stale.status, 409);
}

#[tokio::test]
async fn a_merge_pushed_by_hand_marks_the_merge_request_merged() {
    let forge = Forge::with(PipelinePlan::Hang).await;
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    forge.standin.git(&["update-ref", "refs/heads/main", &sha]).unwrap();
    forge.wait(iid, |found| state(found) == "merged").await;
}

#[tokio::test]
async fn a_deleted_source_branch_shows_and_cannot_be_merged_or_reopened() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    forge.delete("/projects/:id/repository/branches/round").await;
    forge.wait(iid, |found| status(found) == "commits_status").await;
    assert_eq!(forge.merge(iid, json!({ "sha": sha })).await.status, 405);
    forge.close(iid).await;
    let reopened = forge.put(&format!("/projects/:id/merge_requests/{iid}"), json!({ "state_event": "reopen" })).await;
    assert_eq!((reopened.status, state(&reopened.body)), (200, "closed"));
}

#[tokio::test]
async fn cancelling_auto_merge_says_201_either_way() {
    let forge = Forge::with(PipelinePlan::Hang).await;
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    let path = format!("/projects/:id/merge_requests/{iid}/cancel_merge_when_pipeline_succeeds");
    let refused = forge.post(&path, json!({})).await;
    let error = json!({ "status": "error", "message": "Can't cancel the automatic merge", "http_status": 406 });
    assert_eq!((refused.status, refused.body), (201, error));
    forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    let done = forge.post(&path, json!({})).await;
    assert_eq!((done.status, done.body), (201, json!({ "status": "success" })));
    assert_eq!(forge.merge_request(iid).await["merge_when_pipeline_succeeds"], json!(false));
}

/// Merges as an adapter does: 405 while the check runs again means try again. Answers whether this call merged it.
async fn merge_patiently(forge: &Forge, iid: u64, sha: &str) -> bool {
    for _ in 0..200 {
        match forge.merge(iid, json!({ "sha": sha })).await.status {
            200 => return true,
            405 | 422 if state(&forge.merge_request(iid).await) == "merged" => return false,
            405 | 422 => tokio::time::sleep(Duration::from_millis(5)).await,
            other => panic!("a merge answered {other}"),
        }
    }
    panic!("!{iid} was not merged")
}

#[tokio::test]
async fn two_merges_at_once_land_both_and_one_twice_lands_once() {
    let forge = Forge::passing().await;
    let (one, first) = forge.ready("one", "mergeable").await;
    let (two, second) = forge.ready("two", "mergeable").await;
    let merged =
        tokio::join!(merge_patiently(&forge, one, &first), merge_patiently(&forge, one, &first), merge_patiently(&forge, two, &second));
    assert!(merged.0 != merged.1 && merged.2, "{merged:?}");
    assert!(forge.on_target(&first) && forge.on_target(&second));
    assert_eq!(forge.standin.git(&["rev-list", "--merges", "--count", "main"]).unwrap(), "2");
}

#[tokio::test]
async fn a_cancel_that_succeeded_means_no_merge() {
    let forge = Forge::with(PipelinePlan::Hang).await;
    for round in 0..4_u64 {
        let (iid, sha) = forge.ready(&format!("round-{round}"), "ci_still_running").await;
        forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
        let found = forge.wait(iid, |found| found["head_pipeline"]["status"] == "running").await;
        let pipeline = found["head_pipeline"]["id"].as_u64().unwrap();
        let path = format!("/projects/:id/merge_requests/{iid}/cancel_merge_when_pipeline_succeeds");
        forge.standin.end_pipeline(pipeline, local::gitlab::PipelineStatus::Success);
        tokio::time::sleep(Duration::from_millis(round)).await;
        let cancelled = forge.post(&path, json!({})).await.body["status"] == json!("success");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!((cancelled, forge.on_target(&sha)), (cancelled, !cancelled), "after {round} ms");
    }
}
