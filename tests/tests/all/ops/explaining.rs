//! why: for each state, who or what holds it, what must happen next, and since when.

use local::gitlab::PipelinePlan;
use muster_tests::journey::Journey;
use muster_tests::{World, begin_fail, block, fail, grant, record_merge_request, revoke, succeed, withdraw};
use serde_json::{Value, json};
use shared::ids::{BatchId, OperationId};
use shared::state::FailCause;

use super::{ask, order};

async fn why(journey: &Journey, what: Value) -> Value {
    let mut event = what;
    event["action"] = json!("why");
    let answer = ask(journey, event).await;
    assert_eq!(answer["outcome"], "done", "{answer}");
    answer["why"].clone()
}

/// The code, and a part of the reason and of what comes next; nothing that has not ended is without a holder and a time.
async fn assert_why(journey: &Journey, what: Value, code: &str, reason: &str, next: &str) -> Value {
    let before = journey.world.snapshot().await;
    let why = why(journey, what).await;
    assert_eq!(why["code"], code, "{why}");
    assert!(why["reason"].as_str().expect("a reason").contains(reason), "{why}");
    assert!(why["next"].as_str().expect("what comes next").contains(next), "{why}");
    assert!(why["since"].as_str().expect("a time").ends_with('Z'), "{why}");
    assert_eq!(why["holder"].is_null(), code == "ended", "{why}");
    assert_eq!(journey.world.snapshot().await, before, "a question wrote something");
    why
}

fn of(operation: &OperationId) -> Value {
    json!({ "operation_id": operation })
}

async fn two_waiting() -> (Journey, OperationId, OperationId) {
    let journey = Journey::with_world(World::with_waiting(2).await).await;
    let [first, second] = [0, 1].map(|at| journey.world.waiting[at].clone());
    (journey, first, second)
}

#[tokio::test]
async fn a_waiting_request_is_told_what_it_waits_for() {
    let (journey, first, second) = two_waiting().await;
    let sql = async |sql: &str| journey.world.sql(sql, ()).await;
    assert_why(&journey, of(&first), "next_round", "the next round takes it with 2 in all", "invokes claim-round").await;
    sql("UPDATE merge_partition SET closed_at = CURRENT_TIMESTAMP(6)").await;
    assert_why(&journey, of(&first), "next_round", "the partition was closed at", "round").await;
    sql("UPDATE merge_partition SET closed_at = NULL, min_requests = 5").await;
    assert_why(&journey, of(&second), "held_back", "2 of the 5 requests", "or the round starts at 20").await;
    sql("UPDATE merge_partition SET min_requests = 1, max_requests = 1").await;
    assert_why(&journey, of(&second), "behind_others", "its place is 2", "its turn").await;
    sql("UPDATE merge_partition SET max_requests = 100").await;
    let path = "INSERT INTO request_path SELECT ?, path, partition_key, 0 FROM request_path WHERE operation_id = ?";
    journey.world.sql(path, (&second, &first)).await;
    let told = assert_why(&journey, of(&second), "path_conflict", "access/db/subject-1.json", "the earlier request ends").await;
    assert_eq!(told["holder"]["operation_id"], json!(first));
    journey.world.sql("DELETE FROM request_path WHERE operation_id = ? AND path LIKE '%subject-1%'", (&second,)).await;
    journey.world.sql("UPDATE merge_batch_request SET suspect_of = 7, peer_limit = 1 WHERE operation_id = ?", (&first,)).await;
    assert_why(&journey, of(&second), "other_turn", "the next round takes suspects", "takes the others").await;
    sql("UPDATE merge_batch_request SET suspect_of = NULL, peer_limit = NULL").await;
    order(&journey, "pause", json!({ "partition": "default" })).await;
    assert_why(&journey, of(&first), "paused", "because of a test", "an operator resumes it").await;
    order(&journey, "resume", json!({ "partition": "default" })).await;
    sql("UPDATE merge_batch_request SET created_at = CURRENT_TIMESTAMP(6) + INTERVAL 1 HOUR").await;
    assert_why(&journey, of(&first), "same_instant", "in this very instant", "the next round").await;
    sql("UPDATE merge_batch_request SET expires_at = CURRENT_TIMESTAMP(6) - INTERVAL 1 HOUR").await;
    assert_why(&journey, of(&first), "expired", "expired before a round took it", "the next sweep rejects it").await;
}

#[tokio::test]
async fn a_request_behind_a_batch_is_told_what_that_batch_waits_for() {
    let (journey, first, _) = two_waiting().await;
    let batch = journey.world.claimed("token-1").await;
    let late = journey.world.admitted(grant("late", "db")).await;
    let held = assert_why(&journey, of(&late), "slot_occupied", "has no merge request yet", "its merge request is opened").await;
    assert_eq!(held["holder"]["batch_id"], json!(batch));
    let member = assert_why(&journey, of(&first), "not_started", "has no merge request yet", "fails and its members wait again").await;
    assert_eq!((&member["status"], &member["holder"]["batch_id"]), (&json!("IN_BATCH"), &json!(batch)));
    journey.world.sql("UPDATE outbox SET attempts = 3, last_error = 'the forge is down' WHERE kind = 'open_merge_request'", ()).await;
    let told = assert_why(&journey, json!({ "batch_id": batch }), "not_started", "3 attempts failed", "its merge request is opened").await;
    assert_eq!(told["pending"][0]["last_error"], "the forge is down", "{told}");
    let _ = journey.world.run(&withdraw(&first)).await;
    assert_why(&journey, of(&first), "not_started", "the forge is down", "its requester took it back").await;
    let _ = journey.world.run(&record_merge_request(batch, 5)).await;
    journey.world.sql("UPDATE merge_batch SET step = 'pipeline_manual'", ()).await;
    assert_why(&journey, of(&first), "merge_request_open", "in step pipeline_manual of merge request !5", "starts the manual job").await;
    let _ = journey.world.run(&block(batch)).await;
    let blocked =
        assert_why(&journey, json!({ "batch_id": batch }), "blocked", "the forge failed five times", "unblock lets it run on").await;
    assert_eq!(blocked["holder"], "an operator");
    assert_why(&journey, of(&late), "slot_occupied", "is blocked", "unblock").await;
    let _ = journey.world.run(&begin_fail(batch, FailCause::Rejected)).await;
    let failing = assert_why(&journey, json!({ "batch_id": batch }), "failing", "it keeps the slot until that is final", "withdrawn").await;
    assert!(failing["pending"].as_array().expect("effects").iter().any(|one| one["kind"] == "withdraw_merge_request"), "{failing}");
    let _ = journey.world.run(&fail(batch, "settler")).await;
    assert_why(&journey, json!({ "batch_id": batch }), "ended", "has failed", "nothing").await;
}

async fn convict(journey: &Journey, batch: BatchId) {
    let _ = journey.world.run(&begin_fail(batch, FailCause::Content)).await;
    let _ = journey.world.run(&fail(batch, "settler")).await;
}

#[tokio::test]
async fn a_failed_request_is_told_what_its_recovery_needs_and_an_ended_one_that_it_has_ended() {
    let journey = Journey::new().await;
    let granted = journey.world.admitted(grant("alice", "db")).await;
    let batch = journey.world.claimed("token-1").await;
    let _ = journey.world.run(&succeed(batch, "settler")).await;
    assert_why(&journey, of(&granted), "ended", "is MERGED", "nothing").await;
    assert_why(&journey, json!({ "batch_id": batch }), "ended", "has landed", "nothing").await;
    let taken_back = journey.world.admitted(revoke("alice", "db")).await;
    convict(&journey, journey.world.claimed("token-2").await).await;
    assert_why(&journey, of(&taken_back), "failed", "pipeline_failed", "leaves the access as it was").await;
    let bob = journey.world.admitted(grant("bob", "db")).await;
    convict(&journey, journey.world.claimed("token-3").await).await;
    assert_why(&journey, of(&bob), "failed", "failed in batch", "gives its seat back").await;
    let _ = journey.world.run(&withdraw(&bob)).await;
    assert_why(&journey, of(&bob), "closing", "its requester took it back", "the sweep closes it").await;
    let answer = ask(&journey, json!({ "action": "why", "operation_id": OperationId::new() })).await;
    assert!(answer["reason"].as_str().expect("a reason").contains("there is no request"), "{answer}");
    for event in [json!({ "action": "why" }), json!({ "action": "why", "batch_id": 1, "operation_id": bob })] {
        let answer = ask(&journey, event).await;
        assert!(answer["problems"][0].as_str().expect("a problem").contains("either batch_id or operation_id"), "{answer}");
    }
}

#[tokio::test]
async fn a_plan_tells_what_the_next_round_takes_and_changes() {
    let journey = Journey::new().await;
    let revoked_with = |subject: &str, path: &str, content: &str| {
        let files = json!([{ "path": path, "content": content }]);
        muster_tests::request(&json!({ "subject_id": subject, "target_key": "db", "action": "revoke", "change": { "files": files } }))
    };
    journey.world.admitted(grant("alice", "db")).await;
    journey.world.admitted(grant("carol", "db")).await;
    let batch = journey.claimed().await;
    journey.settle_until(batch, adapters::settlement::Progress::Succeeded).await;
    journey.world.admitted(revoke("alice", "db")).await;
    journey.world.admitted(revoked_with("carol", "access/db/carol.json", "gone")).await;
    let bob = journey.world.admitted(grant("bob", "db")).await;
    let misfit = json!([{ "path": "access/db/carol.json.d", "content": "x", "base": "0".repeat(64) }]);
    let dave = json!({ "subject_id": "dave", "target_key": "db", "action": "grant", "change": { "files": misfit } });
    let dave = journey.world.admitted(muster_tests::request(&dave)).await;
    let before = journey.world.snapshot().await;
    let answer = ask(&journey, json!({ "action": "plan", "partition": "default" })).await;
    assert_eq!(journey.world.snapshot().await, before, "a plan wrote something");
    let plan = &answer["plan"];
    assert_eq!((&plan["outcome"], plan["members"].as_array().map(Vec::len)), (&json!("would_claim"), Some(4)), "{answer}");
    assert_eq!(plan["members"][2]["operation_id"], json!(bob), "{answer}");
    assert!(plan["bytes"].as_u64().expect("bytes") > 0 && plan["members"][0]["files"] == 1, "{answer}");
    let changes = &plan["changes"];
    assert_eq!(changes["created"], json!(["access/db/bob.json"]), "{answer}");
    assert_eq!(changes["updated"], json!(["access/db/carol.json"]), "{answer}");
    assert_eq!(changes["deleted"], json!(["access/db/alice.json"]), "{answer}");
    let rejected = &changes["rejected"][0];
    assert_eq!((&rejected["operation_id"], &rejected["code"]), (&json!(dave), &json!("base_mismatch")), "{answer}");
    order(&journey, "pause", json!({ "partition": "default" })).await;
    let plan = ask(&journey, json!({ "action": "plan", "partition": "default" })).await["plan"].clone();
    assert_eq!(
        (&plan["outcome"], plan["members"].as_array().map(Vec::len)),
        (&json!("paused"), Some(4)),
        "it is told before it is resumed"
    );
    order(&journey, "resume", json!({ "partition": "default" })).await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    let batch = journey.world.claimed("token-9").await;
    let plan = ask(&journey, json!({ "action": "plan", "partition": "default" })).await["plan"].clone();
    assert_eq!((&plan["outcome"], &plan["batch_id"], &plan["changes"]), (&json!("slot_occupied"), &json!(batch), &Value::Null));
    let answer = ask(&journey, json!({ "action": "plan", "partition": "nowhere" })).await;
    assert!(answer["reason"].as_str().expect("a reason").contains("there is no partition"), "{answer}");
}
