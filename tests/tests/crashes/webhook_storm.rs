//! Webhooks that come twice, out of order, hours late or from a forger: they may make us look, and decide nothing.

use std::sync::{Arc, Mutex};

use adapters::config::Secret;
use adapters::queue::{Queue, SdkConfig};
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use local::gitlab::{MrState, Webhook};
use muster_tests::deadline::until;
use muster_tests::grant;
use muster_tests::journey::{Journey, stop_at};
use serde_json::{Value, json};
use webhook::{Secrets, WebhookState};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// The function `webhook` behind HTTP, and the queue that it sends to.
struct Gate {
    state: WebhookState,
    hints: Arc<Mutex<Vec<String>>>,
}

/// One SendMessage of the SQS client.
async fn take(State(hints): State<Arc<Mutex<Vec<String>>>>, body: Bytes) -> impl IntoResponse {
    let message: Value = serde_json::from_slice(&body).expect("the client speaks JSON");
    let body = message["MessageBody"].as_str().expect("a message has a body").to_owned();
    hints.lock().expect("no holder panics").push(body);
    ([("content-type", "application/x-amz-json-1.0")], json!({ "MessageId": "one" }).to_string())
}

async fn receive(State(gate): State<Arc<Gate>>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    let mut request = lambda_http::Request::new(lambda_http::Body::Binary(body.to_vec()));
    *request.method_mut() = axum::http::Method::POST;
    *request.headers_mut() = headers;
    let answer = webhook::handle(&gate.state, request).await.expect("every delivery is answered");
    (answer.status(), String::new())
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// Answers the webhook's address, and what it has sent on so far.
async fn gate() -> (String, Arc<Mutex<Vec<String>>>) {
    let hints = Arc::<Mutex<Vec<String>>>::default();
    let queue = serve(Router::new().fallback(post(take)).with_state(hints.clone())).await;
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "test")))
        .region(Region::new("eu-west-1"))
        .endpoint_url(&queue)
        .build();
    let secrets = Secrets::new(vec![Secret::new(SECRET)]).expect("a right secret");
    let state = WebhookState { secrets, queue: Queue::with_config(format!("{queue}/000000000000/mr-status"), &config) };
    let gate = Arc::new(Gate { state, hints: hints.clone() });
    let url = serve(Router::new().route("/webhooks/gitlab", post(receive)).with_state(gate.clone())).await;
    (format!("{url}/webhooks/gitlab"), gate.hints.clone())
}

/// Hands hints to `settle` as SQS does, each in a batch with its copy.
async fn deliver(journey: &Journey, hints: &[String]) {
    let relay = journey.runner(|_| {});
    for hint in hints {
        let record = |id: &str| json!({ "messageId": id, "receiptHandle": "r", "body": hint, "attributes": {}, "messageAttributes": {}, "eventSource": "aws:sqs" });
        let event = json!({ "Records": [record("one"), record("two")] });
        let answer = settle::handle(&relay, event, stop_at()).await.expect("an SQS event is answered");
        assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
    }
}

#[tokio::test]
async fn webhooks_twice_out_of_order_late_and_forged_have_one_effect() {
    let (url, hints) = gate().await;
    let journey = Journey::new().await;
    journey.forge.set_webhook(Some(Webhook { url, secret: SECRET.to_owned() }));
    journey.forge.set_knobs(|knobs| {
        knobs.webhooks_forged = 1;
        knobs.webhooks_doubled = 20;
        knobs.webhooks_delayed = 1;
        knobs.webhooks_delay_ms = 300;
    });
    for subject in ["alice", "bob", "carol"] {
        journey.world.admitted(grant(subject, "db")).await;
    }
    journey.claimed().await;
    until("the merge", async || (journey.forge.merge_requests()[0].state == MrState::Merged).then_some(())).await;
    until("every webhook", async || {
        let seen = journey.forge.deliveries();
        let merges = seen.iter().filter(|one| one.action == "merge").count();
        let is_refused = seen.iter().any(|one| one.status == Some(401));
        (merges == 2 && is_refused && seen.len() >= 6).then_some(())
    })
    .await;
    let refused = journey.forge.deliveries().into_iter().filter(|one| one.status == Some(401)).count();
    assert_eq!(refused, 1, "the forged one and no other: {:?}", journey.forge.deliveries());
    let mut sent = hints.lock().expect("no holder panics").clone();
    assert!(sent.len() >= 4, "{sent:#?}");
    // The newest first, and all of them by two runners at once.
    sent.reverse();
    tokio::join!(deliver(&journey, &sent), deliver(&journey, &sent));
    assert_eq!(journey.world.count("operation WHERE status = 3").await, 3);
    assert_eq!(journey.world.count("outbox WHERE dedup_key LIKE 'request.merged:%'").await, 3, "one effect for each");
    assert_eq!(journey.world.count("outbox WHERE dedup_key LIKE 'batch.succeeded:%'").await, 1);

    let settled = journey.world.snapshot().await;
    let later = json!({ "v": 1, "project_id": 7, "mr_iid": 1, "source_branch": "", "kind": "merge_request", "delivery_id": "d", "received_at": "2020-01-01T00:00:00Z" });
    let foreign = json!({ "v": 1, "project_id": 99, "mr_iid": 1, "source_branch": format!("muster/default/{}", "ab".repeat(16)), "kind": "pipeline", "delivery_id": "d", "received_at": "" });
    sent.extend([later.to_string(), foreign.to_string()]);
    deliver(&journey, &sent).await;
    assert_eq!(journey.world.snapshot().await, settled, "whatever comes later changes nothing");
    journey.world.assert_invariants().await;
}
