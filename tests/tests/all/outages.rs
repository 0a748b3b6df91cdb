//! While something is down nothing is lost, everybody is told, and all goes on by itself.

use adapters::relay::Relay;
use adapters::settlement::Progress;
use local::gitlab::{Fault, FaultEffect, PipelinePlan};
use muster_tests::deadline::until;
use muster_tests::grant;
use muster_tests::journey::{Journey, Published, stop_at};
use serde_json::{Value, json};
use shared::{Store, StoreOptions};

/// A port of this machine on which nobody listens.
async fn nowhere() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    format!("mysql://root@{address}/muster")
}

fn hint(branch: &str) -> Value {
    let body = json!({ "v": 1, "project_id": 7, "mr_iid": 1, "source_branch": branch, "kind": "merge_request", "delivery_id": "d", "received_at": "2027-01-31T09:00:00Z" });
    json!({ "Records": [
        { "messageId": "one", "receiptHandle": "r", "body": body.to_string(), "attributes": {}, "messageAttributes": {}, "eventSource": "aws:sqs" },
        { "messageId": "", "receiptHandle": "r", "body": body.to_string(), "attributes": {}, "messageAttributes": {}, "eventSource": "aws:sqs" },
    ] })
}

async fn failed_records<F: adapters::forge::Forge>(relay: &Relay<F, Published>, event: Value) -> Vec<String> {
    let answer = settle::handle(relay, event, stop_at()).await.expect("an SQS event is answered");
    answer.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect()
}

#[tokio::test]
async fn without_the_database_rounds_are_unavailable_and_records_come_again() {
    let journey = Journey::new().await;
    let store = Store::new(StoreOptions::new(nowhere().await)).expect("a well-formed address");
    let down = Relay { store, ..journey.runner(|_| {}) };
    let answer = claim_round::handle(&down, json!({"partition": "default"}), stop_at()).await.expect("a round always answers");
    let answer = serde_json::to_value(answer).expect("JSON");
    assert_eq!(answer["rounds"][0]["outcome"], "unavailable", "{answer}");
    assert!(answer["rounds"][0]["error"].as_str().is_some_and(|error| error.contains("could not be reached")), "{answer}");
    let branch = format!("muster/default/{}", "ab".repeat(16));
    assert_eq!(failed_records(&down, hint(&branch)).await, ["one"], "an empty identifier is never returned");
    let report = sweep::handle(&down, json!({}), stop_at()).await.expect("a sweep always answers");
    let told = |problem: &String| problem.contains("could not be reached");
    assert!(!report.problems.is_empty() && report.problems.iter().all(told), "{report:?}");
}

#[tokio::test]
async fn while_the_forge_is_down_nothing_is_lost_and_the_sweep_goes_on_by_itself() {
    let journey = Journey::new().await;
    let request = journey.world.admitted(grant("alice", "db")).await;
    journey.forge.inject(Fault {
        method: None,
        path: "/api/".into(),
        times: 1_000_000,
        skip: 0,
        effect: FaultEffect::Cut { after_effect: false },
    });
    let batch = journey.claimed().await;
    assert_eq!(journey.status_of(&request).await, "IN_BATCH");
    assert_eq!(journey.settle(batch).await, Progress::Unreachable);
    let token: String = journey.world.scalar("SELECT LOWER(HEX(claim_token)) FROM merge_batch", ()).await;
    assert_eq!(failed_records(&journey.relay, hint(&format!("muster/default/{token}"))).await, ["one"]);
    journey.forge.clear_faults();
    until("the merge after the outage", async || {
        let later = journey.runner_in(120).await; // Past every back-off.
        let _ = sweep::handle(&later, json!({}), stop_at()).await.expect("a sweep always answers");
        (journey.status_of(&request).await == "MERGED").then_some(())
    })
    .await;
    assert_eq!(journey.forge.merge_requests().len(), 1);
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn while_the_queue_is_down_events_wait_in_the_outbox() {
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    journey.world.admitted(grant("alice", "db")).await;
    journey.relay.outbound.refuse(true);
    journey.claimed().await;
    assert_eq!(journey.relay.outbound.types(), Vec::<String>::new());
    let waiting = journey
        .world
        .count("outbox WHERE kind = 'publish' AND delivered_at IS NULL AND given_up_at IS NULL AND last_error IS NOT NULL")
        .await;
    assert_eq!(waiting, 2);
    journey.relay.outbound.refuse(false);
    let later = Relay { store: journey.world.store_in(120).await, ..journey.runner(|_| {}) };
    let _ = sweep::handle(&later, json!({}), stop_at()).await.expect("a sweep always answers");
    assert_eq!(later.outbound.types(), ["batch.claimed", "request.admitted"]);
    let bodies = later.outbound.bodies();
    for body in &bodies {
        assert!(body["v"] == 1 && body["id"].is_string() && body["at"].is_string() && body["partition"] == "default", "{body}");
    }
}
