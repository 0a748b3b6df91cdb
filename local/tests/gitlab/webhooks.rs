//! Webhooks: what arrives, in which shape, and what is lost or doubled on purpose.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use local::gitlab::Webhook;
use serde_json::{Value, json};

use crate::forge::{Forge, state};

type Received = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

async fn receiver() -> (String, Received) {
    let received = Received::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let store = Arc::clone(&received);
    let take = move |headers: HeaderMap, body: Bytes| async move {
        store.lock().unwrap().push((headers, serde_json::from_slice(&body).unwrap()));
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", post(take))).await });
    (url, received)
}

async fn wait_for(received: &Received, count: usize) -> Vec<(HeaderMap, Value)> {
    for _ in 0..400 {
        if received.lock().unwrap().len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    received.lock().unwrap().clone()
}

fn actions(received: &[(HeaderMap, Value)], kind: &str) -> HashSet<String> {
    let of_kind = received.iter().filter(|(_, body)| body["object_kind"] == kind);
    let what = if kind == "pipeline" { "status" } else { "action" };
    of_kind.map(|(_, body)| body["object_attributes"][what].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_merge_request_and_its_pipeline_are_announced() {
    let (url, received) = receiver().await;
    let forge = Forge::passing().await;
    forge.standin.set_webhook(Some(Webhook { url, secret: "s3cret".to_owned() }));
    let (iid, sha) = forge.ready("round", "mergeable").await;
    forge.merge(iid, json!({ "sha": sha })).await;
    let all = wait_for(&received, 5).await;
    assert_eq!(actions(&all, "merge_request"), ["open", "merge"].map(str::to_owned).into());
    assert_eq!(actions(&all, "pipeline"), ["pending", "running", "success"].map(str::to_owned).into());

    let (headers, body) = all.iter().find(|(_, body)| body["object_attributes"]["action"] == "merge").unwrap();
    let header = |name: &str| headers[name].to_str().unwrap();
    assert_eq!((header("x-gitlab-event"), header("x-gitlab-token")), ("Merge Request Hook", "s3cret"));
    assert_eq!(header("idempotency-key"), header("webhook-id"));
    assert_eq!(body["project"]["id"], json!(7));
    let about = &body["object_attributes"];
    assert_eq!((&about["iid"], &about["state"], &about["last_commit"]["id"]), (&json!(iid), &json!("merged"), &json!(sha)));
    assert_eq!(about["source_branch"], json!("round"));
    for _ in 0..100 {
        if forge.standin.deliveries().len() == 5 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(forge.standin.deliveries().iter().all(|delivery| delivery.status == Some(200)));
}

#[tokio::test]
async fn events_are_dropped_and_doubled_when_asked() {
    let (url, received) = receiver().await;
    let forge = Forge::passing().await;
    forge.standin.set_webhook(Some(Webhook { url, secret: "s".to_owned() }));
    forge.standin.set_knobs(|knobs| {
        knobs.webhooks_dropped = 1;
        knobs.webhooks_doubled = 1;
        knobs.pipeline_appears_ms = 60_000;
    });
    forge.commit("round", "a", "a").await;
    let iid = forge.open("round").await;
    assert_eq!(state(&forge.close(iid).await.body), "closed");
    let all = wait_for(&received, 2).await;
    let keys: HashSet<&str> = all.iter().map(|(headers, _)| headers["idempotency-key"].to_str().unwrap()).collect();
    assert_eq!((all.len(), keys.len()), (2, 1));
    assert_eq!(actions(&all, "merge_request"), ["close".to_owned()].into(), "the opening was dropped, the close sent twice");
}

#[tokio::test]
async fn a_receiver_that_is_down_stops_nothing() {
    let forge = Forge::passing().await;
    forge.standin.set_webhook(Some(Webhook { url: "http://127.0.0.1:9/hook".to_owned(), secret: "s".to_owned() }));
    let (iid, sha) = forge.ready("round", "mergeable").await;
    assert_eq!(forge.merge(iid, json!({ "sha": sha })).await.status, 200);
}

/// A forge with a receiver, and a merge request whose pipeline never comes.
async fn told(secret: &str) -> (Forge, Received, u64) {
    let (url, received) = receiver().await;
    let forge = Forge::passing().await;
    forge.standin.set_knobs(|knobs| knobs.pipeline_appears_ms = 60_000);
    forge.commit("round", "a", "a").await;
    let iid = forge.open("round").await;
    forge.standin.set_webhook(Some(Webhook { url, secret: secret.to_owned() }));
    (forge, received, iid)
}

fn order(received: &[(HeaderMap, Value)]) -> Vec<String> {
    received.iter().map(|(_, body)| body["object_attributes"]["action"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn events_overtake_one_another_come_late_and_come_again() {
    let (forge, received, iid) = told("s").await;
    let reopen = async || forge.put(&format!("/projects/:id/merge_requests/{iid}"), json!({ "state_event": "reopen" })).await;
    forge.standin.set_knobs(|knobs| knobs.webhooks_reordered = 1);
    forge.close(iid).await;
    assert!(received.lock().unwrap().is_empty(), "it waits to be overtaken");
    reopen().await;
    let mut seen = order(&wait_for(&received, 2).await);
    seen.sort();
    assert_eq!(seen, ["close", "reopen"]);

    forge.standin.set_knobs(|knobs| (knobs.webhooks_delayed, knobs.webhooks_delay_ms) = (1, 200));
    forge.close(iid).await;
    reopen().await;
    let all = wait_for(&received, 4).await;
    assert_eq!(order(&all)[2..], ["reopen", "close"]);

    // The receiver has an event a moment before its sender notes the answer.
    while forge.standin.deliveries().len() < 4 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let before = forge.standin.deliveries().len();
    assert_eq!(forge.post("/_standin/deliveries/0/resend", json!({})).await.status, 201);
    assert_eq!(forge.post("/_standin/deliveries/99/resend", json!({})).await.status, 404);
    let all = wait_for(&received, 5).await;
    let keys: HashSet<&str> = all.iter().map(|(headers, _)| headers["idempotency-key"].to_str().unwrap()).collect();
    assert_eq!((all.len(), keys.len(), before), (5, 4, 4), "the same event under the same key");
}

#[tokio::test]
async fn a_signed_event_carries_no_token_and_a_forged_one_another_secret() {
    let (forge, received, iid) = told("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=").await;
    forge.close(iid).await;
    let all = wait_for(&received, 1).await;
    let headers = &all[0].0;
    assert!(headers["webhook-signature"].to_str().unwrap().starts_with("v1,") && !headers.contains_key("x-gitlab-token"));

    let (forge, received, iid) = told("right").await;
    forge.standin.set_knobs(|knobs| knobs.webhooks_forged = 1);
    forge.close(iid).await;
    let all = wait_for(&received, 1).await;
    assert_ne!(all[0].0["x-gitlab-token"], "right");
}

#[tokio::test]
async fn a_hook_that_fails_too_often_is_sent_nothing_more() {
    let forge = Forge::passing().await;
    forge.standin.set_webhook(Some(Webhook { url: "http://127.0.0.1:9/hook".to_owned(), secret: "s".to_owned() }));
    forge.standin.set_knobs(|knobs| knobs.webhook_disabled_after = 2);
    let status = async || forge.get("/projects/:id/hooks/1").await.body["alert_status"].as_str().unwrap().to_owned();
    assert_eq!(status().await, "executable");
    forge.ready("round", "mergeable").await;
    while status().await != "temporarily_disabled" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let sent = forge.standin.deliveries().len();
    forge.ready("other", "mergeable").await;
    assert!(forge.standin.deliveries().len() <= sent + 1, "at most the one that was on its way");
}
