//! The sample events of rounds, sweeps and settlements do, through the real handlers, what their names promise.

use adapters::settlement::Progress;
use muster_tests::grant;
use muster_tests::journey::{Journey, stop_at};
use serde_json::{Value, json};

fn sample(name: &str) -> Value {
    let path = local::places::checkout().join("events").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{name}: {why}"))
}

async fn outcomes(journey: &Journey, name: &str) -> Vec<String> {
    let answer = claim_round::handle(&journey.relay, sample(name), stop_at()).await.expect("a round always answers");
    let answer = serde_json::to_value(answer).expect("JSON");
    assert!(answer.get("problems").is_none(), "{name}: {answer}");
    let rounds = answer["rounds"].as_array().expect("rounds");
    rounds.iter().map(|round| round["outcome"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn every_sample_of_a_round_is_a_round() {
    let journey = Journey::new().await;
    for name in ["claim-round-empty.json", "claim-round-null.json", "schedule.json", "schedule-eventbridge-rule.json"] {
        assert_eq!(outcomes(&journey, name).await, ["nothing_to_claim"], "{name}");
    }
    journey.world.admitted(grant("alice", "db")).await;
    assert_eq!(outcomes(&journey, "claim-round-dry-run.json").await, ["would_claim"]);
    assert_eq!(outcomes(&journey, "claim-round-full.json").await, ["claimed"]);
    assert_eq!(outcomes(&journey, "schedule.json").await, ["slot_occupied"]);
}

#[tokio::test]
async fn the_sample_of_a_sweep_sweeps() {
    let journey = Journey::new().await;
    let report = sweep::handle(&journey.relay, sample("schedule.json"), stop_at()).await.expect("a sweep always answers");
    assert_eq!((report.problems, report.cut_short), (Vec::new(), false));
}

#[tokio::test]
async fn garbage_is_acknowledged_and_never_fails_its_neighbour() {
    let journey = Journey::new().await;
    let request = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    let branch = journey.forge.merge_requests()[0].source_branch.clone();
    let mut event = sample("sqs-mr-status-garbage.json");
    let hint = json!({ "v": 1, "project_id": 7, "mr_iid": 1, "source_branch": branch, "kind": "pipeline", "delivery_id": "d", "received_at": "2027-01-31T09:00:00Z" });
    let mut good = event["Records"][0].clone();
    good["messageId"] = json!("the-good-one");
    good["body"] = json!(hint.to_string());
    event["Records"].as_array_mut().expect("records").insert(1, good);
    muster_tests::deadline::until("the settlement", async || {
        let answer = settle::handle(&journey.relay, event.clone(), stop_at()).await.expect("an SQS event is answered");
        let failures: Vec<String> = answer.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect();
        assert_eq!(failures, Vec::<String>::new(), "nothing here would become better by being delivered again");
        (journey.status_of(&request).await == "MERGED").then_some(())
    })
    .await;
    assert_eq!(journey.settle(batch).await, Progress::Ended);
    let answer = settle::handle(&journey.relay, sample("sqs-mr-status.json"), stop_at()).await.expect("an SQS event is answered");
    assert_eq!(answer.batch_item_failures.len(), 0, "a token that no batch has is acknowledged, and alarmed");
    journey.world.assert_invariants().await;
}
