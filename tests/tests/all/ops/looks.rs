//! status, show.

use muster_tests::journey::Journey;
use muster_tests::{grant, revoke, succeed};
use serde_json::{Value, json};
use shared::ids::OperationId;

use super::{ask, order};

#[tokio::test]
async fn a_batch_is_shown_with_all_that_belongs_to_it() {
    let journey = Journey::new().await;
    let request = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.claimed().await;
    order(&journey, "abort", json!({ "batch_id": batch })).await;
    let answer = ask(&journey, json!({ "action": "show", "batch_id": batch, "actor": "ann" })).await;
    assert_eq!(answer["outcome"], "done", "{answer}");
    let shown = &answer["batch"];
    assert_eq!((&shown["batch_id"], &shown["partition"], &shown["mr_iid"]), (&json!(batch), &json!("default"), &json!("1")));
    assert!(shown["branch"].as_str().expect("a branch").starts_with("muster/default/"), "{shown}");
    let member = &shown["members"][0];
    assert_eq!(
        (&member["operation_id"], &member["subject_id"], &member["position"]),
        (&json!(request), &json!("alice"), &json!(0)),
        "{member}"
    );
    assert!(member["outcome"].is_string() && member["status"].is_string(), "{member}");
    let kinds: Vec<&str> = shown["effects"].as_array().expect("effects").iter().filter_map(|effect| effect["kind"].as_str()).collect();
    assert!(kinds.contains(&"open_merge_request") && kinds.contains(&"publish"), "{kinds:?}");
    let first_event = kinds.iter().position(|kind| *kind == "publish").expect("an event");
    assert!(kinds[first_event..].iter().all(|kind| *kind == "publish"), "effects on the forge come first: {kinds:?}");
    let audit: Vec<&str> = shown["audit"].as_array().expect("audit").iter().filter_map(|record| record["action"].as_str()).collect();
    assert!(audit.contains(&"abort") && audit.contains(&"begin_fail"), "{audit:?}");
    assert_eq!(
        shown["audit"].as_array().expect("audit").iter().find(|one| one["action"] == "abort").expect("it")["before"]["status"],
        "RUNNING"
    );
}

#[tokio::test]
async fn a_request_is_shown_with_its_relationship_and_where_it_has_been() {
    let journey = Journey::new().await;
    let granted = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.world.claimed("token-1").await;
    let _ = journey.world.run(&succeed(batch, "settler")).await;
    let taken_back = journey.world.admitted(revoke("alice", "db")).await;
    let answer = ask(&journey, json!({ "action": "show", "operation_id": granted })).await;
    let shown = &answer["operation"];
    assert_eq!((&shown["status"], &shown["action"], &shown["batch_id"]), (&json!("MERGED"), &json!("grant"), &json!(batch)), "{shown}");
    assert_eq!((&shown["binding"]["status"], &shown["binding"]["operation_id"]), (&json!("REVOKING"), &json!(taken_back)));
    let steps: Vec<(&Value, &Value)> = shown["history"].as_array().expect("history").iter().map(|one| (&one["from"], &one["to"])).collect();
    assert_eq!(steps, [(&json!("ACTIVE"), &json!("REVOKING")), (&json!("APPLYING"), &json!("ACTIVE")), (&Value::Null, &json!("APPLYING"))]);
    assert_eq!(shown["paths"], json!([{ "path": "access/db/alice.json", "deletes": 0 }]));
    let membership = &shown["memberships"][0];
    assert_eq!((&membership["outcome"], &membership["batch_status"]), (&json!("merged"), &json!("SUCCEEDED")), "{membership}");
    let events: Vec<&str> =
        shown["effects"].as_array().expect("effects").iter().filter_map(|one| one["payload"]["type"].as_str()).collect();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.contains(&"request.admitted") && events.contains(&"request.merged"), "{events:?}");
    assert_eq!(shown["audit"][0]["action"], "admit");
    let waiting = ask(&journey, json!({ "action": "show", "operation_id": taken_back })).await;
    assert_eq!(waiting["operation"]["waiting_row"]["batch_id"], Value::Null, "{waiting}");
}

#[tokio::test]
async fn one_thing_is_shown_at_a_time_and_an_unknown_one_is_named() {
    let journey = Journey::new().await;
    let operation = OperationId::new();
    for event in [json!({ "action": "show" }), json!({ "action": "show", "batch_id": 1, "operation_id": operation })] {
        let answer = ask(&journey, event).await;
        assert!(answer["problems"][0].as_str().expect("a problem").contains("either batch_id or operation_id"), "{answer}");
    }
    for (event, reason) in [
        (json!({ "action": "show", "batch_id": 1 }), "no batch 1".to_owned()),
        (json!({ "action": "show", "operation_id": operation }), format!("no request {operation}")),
    ] {
        let answer = ask(&journey, event).await;
        assert_eq!(answer["outcome"], "refused");
        assert!(answer["reason"].as_str().expect("a reason").contains(&reason), "{answer}");
    }
    let answer = ask(&journey, json!({ "action": "show", "batch_id": "one", "all": true })).await;
    assert_eq!(answer["problems"].as_array().map(Vec::len), Some(2), "{answer}");
}

#[tokio::test]
async fn status_tells_what_waits_and_what_runs() {
    let journey = Journey::new().await;
    journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.world.claimed("token-1").await;
    journey.world.admitted(grant("bob", "db")).await;
    let answer = ask(&journey, json!({ "action": "status" })).await;
    let partition = &answer["status"]["partitions"][0];
    assert_eq!((&answer["outcome"], &partition["waiting"]), (&json!("done"), &json!(1)), "{answer}");
    assert_eq!(partition["active_batch"]["batch_id"], json!(batch), "{answer}");
    let answer = ask(&journey, json!({ "action": "status", "partition": "default" })).await;
    assert_eq!(answer["outcome"], "refused");
}
