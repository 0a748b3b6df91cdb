//! The actions of operators, through the real handler.

mod auditing;
mod batches;
mod closing;
mod contradicted;
mod doctoring;
mod explaining;
mod looks;
mod partitions;
mod recovering;
mod requests;
mod retention;
mod targets;

use muster_tests::journey::{Journey, stop_at};
use muster_tests::{OPERATOR, World};
use serde_json::{Value, json};

/// Orders an action as the operator, with a reason.
async fn order(journey: &Journey, action: &str, fields: Value) -> Value {
    order_by(&journey.relay, action, fields).await
}

async fn order_by<F: adapters::forge::Forge, E: adapters::outbound::Outbound>(
    relay: &adapters::relay::Relay<F, E>,
    action: &str,
    fields: Value,
) -> Value {
    let mut event = json!({ "action": action, "actor": OPERATOR, "reason": "because of a test" });
    event.as_object_mut().expect("an object").extend(fields.as_object().expect("fields").clone());
    ops::handle(relay, event, stop_at()).await.expect("the database answers")
}

/// Asks for something that needs no signature.
async fn ask(journey: &Journey, event: Value) -> Value {
    ops::handle(&journey.relay, event, stop_at()).await.expect("the database answers")
}

/// The order is refused for this reason, and nothing was written.
async fn refused(journey: &Journey, action: &str, fields: Value, reason: &str) -> Value {
    let before = journey.world.snapshot().await;
    let answer = order(journey, action, fields).await;
    assert_eq!(answer["outcome"], "refused", "{answer}");
    assert!(answer["reason"].as_str().expect("a reason").contains(reason), "{answer}");
    assert_eq!(answer["audit_id"], Value::Null, "{answer}");
    assert_eq!(journey.world.snapshot().await, before, "a refusal wrote something");
    answer
}

/// The rehearsal answers what the order then does, and writes nothing.
async fn rehearsed_then_done(journey: &Journey, action: &str, fields: Value) -> Value {
    let mut rehearsal = fields.clone();
    rehearsal["dry_run"] = json!(true);
    let before = journey.world.snapshot().await;
    let rehearsed = order(journey, action, rehearsal).await;
    assert_eq!((&rehearsed["outcome"], &rehearsed["audit_id"]), (&json!("dry_run"), &Value::Null), "{rehearsed}");
    assert_eq!(journey.world.snapshot().await, before, "a rehearsal wrote something");
    let done = order(journey, action, fields).await;
    assert_eq!(done["outcome"], "done", "{done}");
    assert_eq!(rehearsed["before"], done["before"], "{rehearsed}");
    signed(&journey.world, action, &done).await;
    done
}

/// The order is as good as done, and nothing was written.
async fn already(journey: &Journey, action: &str, fields: Value) -> Value {
    let before = journey.world.snapshot().await;
    let answer = order(journey, action, fields).await;
    assert_eq!((&answer["outcome"], &answer["audit_id"]), (&json!("already"), &Value::Null), "{answer}");
    assert_eq!(journey.world.snapshot().await, before, "an order that was done already wrote something");
    answer
}

/// The audit record that the answer names says who, what and why.
async fn signed(world: &World, action: &str, answer: &Value) {
    let id = answer["audit_id"].as_str().expect("an audit record");
    let sql = "SELECT action, actor, reason FROM audit_record WHERE dedup_key = ?";
    let record: Vec<(String, String, String)> = world.rows(sql, (id,)).await;
    assert_eq!(record, [(action.to_owned(), OPERATOR.to_owned(), "because of a test".to_owned())]);
}

#[tokio::test]
async fn an_event_that_is_no_command_is_told_what_is_wrong_and_changes_nothing() {
    let journey = Journey::new().await;
    let before = journey.world.snapshot().await;
    for event in [
        json!(null),
        json!([]),
        json!("status"),
        json!({}),
        json!({ "action": 7 }),
        json!({ "action": "x".repeat(10_000) }),
        json!({ "action": "drop" }),
    ] {
        let answer = ask(&journey, event.clone()).await;
        assert_eq!(answer["outcome"], "refused", "{answer}");
        let problem = answer["problems"][0].as_str().expect("a problem");
        assert!(problem.contains("set_partition") && problem.contains("status"), "the known actions are named: {problem}");
        assert!(answer.to_string().len() < 2_000, "a hostile event is not repeated");
    }
    assert_eq!(journey.world.snapshot().await, before);
}

#[tokio::test]
async fn every_writing_action_lists_all_that_is_wrong_with_its_event() {
    let journey = Journey::new().await;
    let before = journey.world.snapshot().await;
    let wrong = json!({
        "actor": "two words", "reason": "", "dry_run": "no", "partition": "!", "target_key": "..", "batch_id": "x", "operation_id": "y",
        "until": "tomorrow", "capacity": -1, "unheard_of": 1,
    });
    for (action, own) in [
        ("set_partition", vec!["partition"]),
        ("set_target", vec!["target_key", "partition", "capacity"]),
        ("pause", vec!["partition", "until"]),
        ("resume", vec!["partition"]),
        ("abort", vec!["batch_id"]),
        ("requeue", vec!["batch_id"]),
        ("unblock", vec!["batch_id"]),
        ("withdraw", vec!["operation_id"]),
        ("recover", vec!["operation_id", "to is missing"]),
        ("audit", vec![]),
        ("purge", vec![]),
    ] {
        let mut event = wrong.clone();
        event["action"] = json!(action);
        let answer = ask(&journey, event).await;
        assert_eq!((&answer["action"], &answer["outcome"]), (&json!(action), &json!("refused")));
        let problems = answer["problems"].to_string();
        for part in ["principal", "reason", "dry_run", "unheard_of"].into_iter().chain(own) {
            assert!(problems.contains(part), "{action} does not name {part}: {problems}");
        }
        let answer = ask(&journey, json!({ "action": action })).await;
        let problems = answer["problems"].to_string();
        assert!(problems.contains("actor is missing") && problems.contains("reason is missing"), "{problems}");
    }
    let answer = ask(&journey, json!({ "action": "purge", "actor": "ann", "reason": "x".repeat(256) })).await;
    assert!(answer["problems"][0].as_str().expect("a problem").contains("1 to 255"), "{answer}");
    assert_eq!(journey.world.snapshot().await, before);
}

#[tokio::test]
async fn every_sample_event_is_understood() {
    let journey = Journey::new().await;
    let mut samples = Vec::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../events")).expect("the sample events") {
        let path = entry.expect("an entry").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ops-")) {
            samples.push(path);
        }
    }
    assert!(samples.len() >= 13, "one for each action: {samples:?}");
    samples.sort();
    for path in samples {
        let event = serde_json::from_slice(&std::fs::read(&path).expect("a sample")).expect("JSON");
        let answer = ask(&journey, event).await;
        assert!(answer["action"].is_string() && answer["problems"].is_null(), "{}: {answer}", path.display());
    }
}
