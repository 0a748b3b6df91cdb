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
