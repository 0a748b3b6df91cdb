//! Injected faults: over the admin API as well as in process.

use std::time::{Duration, Instant};

use local::gitlab::{Fault, PipelinePlan};
use reqwest::Method;
use serde_json::json;

use crate::forge::{Forge, message, state};

#[tokio::test]
async fn a_lost_answer_leaves_the_commit_made() {
    let forge = Forge::passing().await;
    let body = json!({
        "branch": "round", "start_sha": forge.head("main"), "commit_message": "m",
        "actions": [{ "action": "create", "file_path": "a", "content": "a" }],
    });
    forge.standin.inject(Fault::lost_answer("POST", "/repository/commits"));
    let lost = forge.try_call(Method::POST, "/projects/:id/repository/commits", Some(body.clone())).await;
    assert!(lost.is_err(), "{lost:?}");
    let again = forge.post("/projects/:id/repository/commits", body).await;
    let text = json!("A branch called 'round' already exists. Switch to that branch in order to make changes");
    assert_eq!(message(&again), (400, text));
    assert_eq!(forge.get("/projects/:id/repository/branches/round").await.body["commit"]["message"], json!("m"));
    let statuses: Vec<u16> = forge.standin.calls().into_iter().map(|(_, _, status)| status).collect();
    assert_eq!(statuses, [0, 400, 200]);
}

#[tokio::test]
async fn a_cut_before_the_effect_changes_nothing() {
    let forge = Forge::passing().await;
    let fault = json!({ "method": "POST", "path": "acme/access/repository/branches", "effect": { "kind": "cut" } });
    assert_eq!(forge.post("/_standin/faults", fault).await.status, 201);
    let body = json!({ "branch": "b", "ref": "main" });
    assert!(forge.try_call(Method::POST, "/projects/:id/repository/branches", Some(body)).await.is_err());
    assert_eq!(forge.get("/projects/:id/repository/branches/b").await.status, 404);
}

#[tokio::test]
async fn answers_are_replaced_as_often_as_asked() {
    let forge = Forge::passing().await;
    forge.standin.inject(Fault::resource_lock("GET", "/user").times(2));
    for _ in 0..2 {
        assert_eq!(message(&forge.get("/user").await), (409, json!("409 Conflict: Resource lock")));
    }
    forge.standin.inject(Fault::bad_gateway("GET", "/user"));
    let html = forge.get("/user").await;
    assert_eq!((html.status, html.body.as_str().unwrap().starts_with("<!DOCTYPE html>")), (502, true));
    forge.standin.inject(Fault::rate_limited("GET", "/user", None));
    assert_eq!(forge.get("/user").await.body, json!("Retry later\n"));
    assert_eq!(forge.get("/user").await.status, 200);
}

#[tokio::test]
async fn a_rate_limit_carries_its_headers_when_asked() {
    let forge = Forge::passing().await;
    forge.standin.inject(Fault::rate_limited("GET", "/version", Some(3)));
    let url = format!("{}/api/v4/version", forge.standin.url());
    let answer = reqwest::get(url).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()), (429, "3"));
}

#[tokio::test]
async fn a_500_may_have_closed_the_merge_request() {
    let forge = Forge::passing().await;
    let (iid, _) = forge.ready("round", "mergeable").await;
    forge.standin.inject(Fault::broken("PUT", "/merge_requests/", true));
    assert_eq!(forge.close(iid).await.status, 500);
    assert_eq!(state(&forge.merge_request(iid).await), "closed");
}

#[tokio::test]
async fn a_delay_holds_the_answer_back() {
    let forge = Forge::passing().await;
    let fault = json!({ "path": "/version", "effect": { "kind": "delay", "ms": 60 } });
    forge.post("/_standin/faults", fault).await;
    let start = Instant::now();
    assert_eq!(forge.get("/version").await.status, 200);
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn a_branch_is_visible_only_after_its_lag() {
    let forge = Forge::passing().await;
    forge.standin.set_knobs(|knobs| knobs.branch_lag_ms = 3_600_000);
    forge.commit("round", "a", "a").await;
    let body = json!({ "source_branch": "round", "target_branch": "main", "title": "t" });
    let early = forge.post("/projects/:id/merge_requests", body.clone()).await;
    assert_eq!(message(&early), (400, json!({ "source_branch": ["does not exist"] })));
    forge.standin.set_knobs(|knobs| knobs.branch_lag_ms = 0);
    assert_eq!(forge.post("/projects/:id/merge_requests", body).await.status, 201);
}

#[tokio::test]
async fn arming_can_lie_and_refuse() {
    let forge = Forge::with(PipelinePlan::Hang).await;
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    let knobs = forge.try_call(Method::PATCH, "/_standin/knobs", Some(json!({ "merge_405": 2, "merge_unarmed": 1 }))).await.unwrap();
    assert_eq!(knobs.status, 200, "{}", knobs.body);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let answer = forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
        seen.push((answer.status, answer.body["merge_when_pipeline_succeeds"].as_bool()));
    }
    assert_eq!(seen, [(405, None), (405, None), (200, Some(false)), (200, Some(true))]);
    let unknown = forge.try_call(Method::PATCH, "/_standin/knobs", Some(json!({ "no_such": 1 }))).await.unwrap();
    assert_eq!(unknown.status, 400);
}
