//! The admin API: the same control over HTTP, for processes that do not hold the stand-in.

use std::time::Duration;

use local::gitlab::PipelinePlan;
use reqwest::Method;
use serde_json::{Value, json};

use crate::forge::{Forge, state};

#[tokio::test]
async fn a_person_closes_reopens_locks_and_merges() {
    let forge = Forge::with(PipelinePlan::Hang).await;
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    let mut states = Vec::new();
    for verb in ["close", "reopen", "lock", "unlock", "merge"] {
        let answer = forge.post(&format!("/_standin/merge_requests/{iid}/{verb}"), json!({ "by": "bob" })).await;
        assert_eq!(answer.status, 200, "{verb}: {}", answer.body);
        states.push(answer.body["state"].as_str().unwrap().to_owned());
        if verb == "close" {
            assert_eq!(forge.merge_request(iid).await["closed_by"]["username"], json!("bob"));
        }
    }
    assert_eq!(states, ["closed", "opened", "locked", "opened", "merged"]);
    assert_eq!(forge.merge_request(iid).await["merged_by"]["username"], json!("bob"));
    assert!(forge.on_target(&sha));
    assert_eq!(forge.post("/_standin/merge_requests/9/close", json!({})).await.status, 404);
    assert_eq!(forge.post(&format!("/_standin/merge_requests/{iid}/eat"), json!({})).await.status, 400);
    let list = forge.get("/_standin/merge_requests").await.body;
    assert_eq!((&list[0]["state"], &list[0]["merged_by"]), (&json!("merged"), &json!("bob")));
}

#[tokio::test]
async fn pipelines_are_planned_and_ended() {
    let forge = Forge::passing().await;
    let plan = json!({ "kind": "fail_if_path", "substring": "bad", "after_ms": 20 });
    assert_eq!(forge.put("/_standin/pipeline", plan.clone()).await.body, plan);
    assert_eq!(forge.put("/_standin/pipeline", json!({ "kind": "hang" })).await.status, 200);
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    let found = forge.wait(iid, |found| found["head_pipeline"]["status"] == "running").await;
    let id = found["head_pipeline"]["id"].as_u64().unwrap();
    assert_eq!(forge.put(&format!("/_standin/pipelines/{id}"), json!({ "status": "success" })).await.status, 200);
    forge.wait(iid, |found| state(found) == "merged").await;
    assert_eq!(forge.put("/_standin/pipeline", json!({ "kind": "explode" })).await.status, 400);
}

#[tokio::test]
async fn a_person_pushes_and_calls_are_counted() {
    let forge = Forge::passing().await;
    let body = json!({ "branch": "main", "files": { "new.txt": "hi\n", "README.md": null }, "message": "By hand", "by": "carol" });
    let pushed = forge.post("/_standin/push", body).await;
    assert_eq!((pushed.status, pushed.body["id"].as_str().unwrap()), (201, forge.head("main").as_str()));
    let log = forge.standin.git(&["log", "-1", "--name-status", "--format=%an: %s", "main"]).unwrap();
    assert_eq!(log, "carol: By hand\n\nD\tREADME.md\nA\tnew.txt");

    forge.get("/version").await;
    forge.get("/projects/:id/repository/branches/main").await;
    let calls = forge.get("/_standin/calls").await.body;
    assert_eq!((&calls["count"], &calls["calls"][0]["path"]), (&json!(2), &json!("/api/v4/version")), "its own calls are not among them");
    assert_eq!(forge.standin.count_calls("GET", "acme/access/repository"), 1);
    forge.delete("/_standin/calls").await;
    assert_eq!(forge.get("/_standin/calls").await.body["count"], json!(0));
}

#[tokio::test]
async fn the_webhook_is_set_and_removed() {
    let forge = Forge::passing().await;
    let hook = json!({ "url": "http://127.0.0.1:9/x", "secret": "s" });
    assert_eq!(forge.put("/_standin/webhook", hook).await.status, 200);
    let listed = forge.get("/projects/:id/hooks/1").await.body;
    assert_eq!(
        (&listed["url"], &listed["alert_status"], listed.get("token")),
        (&json!("http://127.0.0.1:9/x"), &json!("executable"), None)
    );
    assert_eq!(forge.put("/_standin/webhook", Value::Null).await.status, 200);
    assert_eq!(forge.get("/projects/:id/hooks/1").await.status, 404);
}

#[tokio::test]
async fn a_caller_that_hangs_up_does_not_stop_the_merge() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    forge.standin.set_knobs(|knobs| knobs.merge_takes_ms = 60);
    let path = format!("/projects/:id/merge_requests/{iid}/merge");
    let call = forge.try_call(Method::PUT, &path, Some(json!({ "sha": sha })));
    assert!(tokio::time::timeout(Duration::from_millis(25), call).await.is_err());
    forge.wait(iid, |found| state(found) == "merged").await;
    assert!(forge.on_target(&sha));
}
