//! audit: names what is broken, and stops the rounds there.

use muster_tests::journey::Journey;
use muster_tests::{World, begin_fail, fail, grant, succeed};
use serde_json::{Value, json};
use shared::audit::INVARIANTS;
use shared::state::FailCause;

use super::{already, order, rehearsed_then_done};

/// Two partitions in which everything has happened; the target of the first is counted.
async fn eventful() -> Journey {
    let world = World::new().await.with_partition("other").await.with_target("db", "default", Some(50)).await;
    let world = world.with_target("elsewhere", "other", None).await;
    world.admitted(grant("merged", "db")).await;
    let _ = world.run(&succeed(world.claimed("round-1").await, "settler")).await;
    world.admitted(grant("rejected", "db")).await;
    let batch = world.claimed("round-2").await;
    let _ = world.run(&begin_fail(batch, FailCause::Rejected)).await;
    let _ = world.run(&fail(batch, "settler")).await;
    world.admitted(grant("member", "db")).await;
    world.claimed("round-3").await;
    world.admitted(grant("waiting", "db")).await;
    world.admitted(grant("waiting", "elsewhere")).await;
    world.assert_invariants().await;
    Journey::with_world(world).await
}

/// What to plant, the invariant that must be named, SQL for the id that must be named, and the partitions to stop.
type Corruption = (&'static str, &'static str, &'static str, &'static [&'static str]);

const BOTH: &[&str] = &["default", "other"];
const ONE: &[&str] = &["default"];

const CORRUPTIONS: &[Corruption] = &[
    (
        "INSERT INTO merge_batch_member SELECT 1, operation_id, 9, NULL, NULL FROM merge_batch_member WHERE outcome IS NULL",
        "I2.open",
        "SELECT CONCAT(operation_id) FROM operation WHERE subject_id = 'member'",
        ONE,
    ),
    (
        "INSERT INTO merge_batch_member SELECT 2, operation_id, 9, 1, NULL FROM merge_batch_member WHERE outcome = 1",
        "I2.merged",
        "SELECT CONCAT(operation_id) FROM operation WHERE subject_id = 'merged'",
        ONE,
    ),
    (
        "DELETE FROM merge_batch_member WHERE outcome IS NULL",
        "I2.row",
        "SELECT CONCAT(operation_id) FROM operation WHERE subject_id = 'member'",
        ONE,
    ),
    (
        "UPDATE idempotency_record SET principal = 'somebody-else', request_key = 'nobody-knows' LIMIT 1",
        "I4.whole",
        "SELECT CONCAT(principal, ' ', request_key) FROM idempotency_record WHERE principal = 'somebody-else'",
        BOTH,
    ),
    (
        "INSERT INTO idempotency_record (principal, request_key, payload_hash, operation_id, expires_at) \
         SELECT i.principal, 'another', i.payload_hash, i.operation_id, i.expires_at FROM idempotency_record i \
         JOIN operation o USING (operation_id) WHERE o.subject_id = 'merged'",
        "I4.once",
        "SELECT CONCAT(operation_id) FROM operation WHERE subject_id = 'merged'",
        ONE,
    ),
    (
        "DELETE FROM binding WHERE target_key = 'elsewhere'",
        "I5.held",
        "SELECT CONCAT(operation_id) FROM operation WHERE target_key = 'elsewhere'",
        &["other"],
    ),
    ("UPDATE binding SET status = 6 WHERE subject_id = 'merged'", "I5.state", "SELECT 'merged db'", ONE),
    ("UPDATE binding SET granted_by_operation_id = REPEAT('0', 36) WHERE subject_id = 'merged'", "I5.granted", "SELECT 'merged db'", ONE),
    ("DELETE FROM binding_history WHERE subject_id = 'merged' AND to_status = 2", "I5.history", "SELECT 'merged db'", ONE),
    (
        "UPDATE merge_batch_member SET outcome = NULL WHERE outcome = 1",
        "I6",
        "SELECT CONCAT(b.id, ' ', o.operation_id) FROM operation o JOIN merge_batch b ON b.id = o.batch_id WHERE o.subject_id = 'merged'",
        ONE,
    ),
    (
        "UPDATE operation SET status = 4 WHERE subject_id = 'merged'",
        "I8.landed",
        "SELECT CONCAT(operation_id) FROM operation WHERE subject_id = 'merged'",
        ONE,
    ),
    (
        "UPDATE merge_batch SET status = 3 WHERE status = 2",
        "I8.merged",
        "SELECT CONCAT(operation_id) FROM operation WHERE subject_id = 'merged'",
        ONE,
    ),
    ("DELETE FROM outbox WHERE dedup_key LIKE 'batch.succeeded:%'", "I9.batch", "SELECT CONCAT(id) FROM merge_batch WHERE status = 2", ONE),
    (
        "DELETE r FROM merge_batch_request r JOIN operation o USING (operation_id) WHERE o.target_key = 'elsewhere'",
        "I11.waiting",
        "SELECT CONCAT(operation_id) FROM operation WHERE target_key = 'elsewhere'",
        &["other"],
    ),
    (
        "UPDATE merge_batch_member SET outcome = 2 WHERE outcome IS NULL",
        "I11.members",
        "SELECT CONCAT(id) FROM merge_batch WHERE status = 1",
        ONE,
    ),
    (
        "UPDATE target SET used = used + 1 WHERE target_key = 'db'",
        "seats",
        "SELECT CONCAT('db used ', used) FROM target WHERE target_key = 'db'",
        ONE,
    ),
    (
        "DELETE c FROM operation_content c JOIN operation o USING (operation_id) WHERE o.target_key = 'elsewhere'",
        "content",
        "SELECT CONCAT(operation_id) FROM operation WHERE target_key = 'elsewhere'",
        &["other"],
    ),
    (
        "DELETE FROM target WHERE target_key = 'elsewhere'",
        "orphans",
        "SELECT CONCAT('operation ', operation_id) FROM operation WHERE target_key = 'elsewhere'",
        &["other"],
    ),
];

fn breach<'a>(answer: &'a Value, invariant: &str) -> Option<&'a Value> {
    answer["breaches"].as_array().expect("breaches").iter().find(|one| one["invariant"] == invariant)
}

#[tokio::test]
async fn every_planted_corruption_is_named_and_stops_the_rounds_there() {
    let journey = eventful().await;
    let saved = journey.world.save().await;
    for (sql, invariant, id, stopped) in CORRUPTIONS {
        journey.world.restore(&saved).await;
        journey.world.sql(sql, ()).await;
        let id: String = journey.world.scalar(id, ()).await;
        let answer = order(&journey, "audit", json!({})).await;
        assert_eq!(answer["outcome"], "done", "{sql}: {answer}");
        let found = breach(&answer, invariant).unwrap_or_else(|| panic!("{sql}: {invariant} is not named: {answer}"));
        assert!(found["ids"].as_array().expect("ids").contains(&json!(id)), "{sql}: {id} is not named: {answer}");
        assert_eq!((found["sentence"].is_string(), &answer["paused"]), (true, &json!(stopped)), "{sql}");
        let paused: Vec<(String,)> = journey
            .world
            .rows("SELECT partition_key FROM merge_partition WHERE pause_reason LIKE 'the audit found broken: %' ORDER BY 1", ())
            .await;
        assert_eq!(json!(paused.iter().map(|(key,)| key).collect::<Vec<_>>()), json!(stopped), "{sql}");
    }
}

#[tokio::test]
async fn where_nothing_is_broken_nothing_is_written_and_a_rehearsal_stops_nothing() {
    let journey = eventful().await;
    let before = journey.world.snapshot().await;
    let answer = order(&journey, "audit", json!({})).await;
    assert_eq!((&answer["outcome"], &answer["breaches"], &answer["checked"]), (&json!("done"), &json!([]), &json!(INVARIANTS.len())));
    assert_eq!(journey.world.snapshot().await, before);
    journey.world.sql("UPDATE target SET used = used + 1 WHERE target_key = 'db'", ()).await;
    let done = rehearsed_then_done(&journey, "audit", json!({})).await;
    assert_eq!((done["breaches"].as_array().map(Vec::len), &done["paused"]), (Some(1), &json!(["default"])), "{done}");
    let again = already(&journey, "audit", json!({})).await;
    assert_eq!(again["paused"], json!(["default"]), "it is told for as long as it lasts: {again}");
}

#[tokio::test]
async fn a_pause_that_somebody_ordered_keeps_its_reason() {
    let journey = eventful().await;
    order(&journey, "pause", json!({ "partition": "default" })).await;
    journey.world.sql("DELETE FROM target WHERE target_key = 'elsewhere'", ()).await;
    journey.world.sql("UPDATE target SET used = used + 1 WHERE target_key = 'db'", ()).await;
    let answer = order(&journey, "audit", json!({})).await;
    assert_eq!((&answer["outcome"], &answer["paused"]), (&json!("done"), &json!(["default", "other"])), "{answer}");
    let reason: String = journey.world.scalar("SELECT pause_reason FROM merge_partition WHERE partition_key = 'default'", ()).await;
    assert_eq!(reason, "because of a test");
}
