//! I4, I5: a request is admitted once, and a relationship has one row.

use muster_tests::*;
use serde_json::json;
use shared::state::{FailCause, OperationStatus};
use shared::transactions::admit::{Admission, Admit, AdmitOutcome};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::withdraw::WithdrawOutcome;

#[tokio::test]
async fn a_grant_is_admitted_with_everything_that_belongs_to_it() {
    let world = World::new().await;
    let unit = admit(request(&json!({
        "subject_id": "alice", "target_key": "db", "action": "grant", "priority": 2, "approval_ref": "CHG-7", "attributes": { "role": "reader" }
    })));
    let outcome = world.run(&unit).await;
    let created_at: String = world.scalar("SELECT DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ') FROM operation", ()).await;
    assert_eq!(
        outcome,
        AdmitOutcome::Admitted(Admission { operation: unit.operation.clone(), status: OperationStatus::Waiting, created_at })
    );
    let id = unit.operation.as_str();
    let operations = "SELECT CONCAT_WS(' ', operation_id, partition_key, subject_id, target_key, action, status, requested_by, approval_ref, priority, version) FROM operation";
    assert_eq!(world.rows::<String>(operations, ()).await, [format!("{id} default alice db 1 1 {REQUESTER} CHG-7 2 1")]);
    let bindings =
        "SELECT CONCAT_WS(' ', subject_id, target_key, status, operation_id, IFNULL(granted_by_operation_id, '-'), version) FROM binding";
    assert_eq!(world.rows::<String>(bindings, ()).await, [format!("alice db 1 {id} - 1")]);
    let waiting = "SELECT CONCAT_WS(' ', operation_id, partition_key, IFNULL(batch_id, '-'), TIMESTAMPDIFF(SECOND, rank_at, created_at)) FROM merge_batch_request";
    assert_eq!(world.rows::<String>(waiting, ()).await, [format!("{id} default - 600")]);
    let paths = "SELECT CONCAT_WS(' ', operation_id, path, partition_key, deletes) FROM request_path";
    assert_eq!(world.rows::<String>(paths, ()).await, [format!("{id} access/db/alice.json default 0")]);
    let history = "SELECT CONCAT_WS(' ', subject_id, target_key, operation_id, IFNULL(from_status, '-'), to_status, IFNULL(batch_id, '-'), actor) FROM binding_history";
    assert_eq!(world.rows::<String>(history, ()).await, [format!("alice db {id} - 1 - {REQUESTER}")]);
    let audit = "SELECT CONCAT_WS(' ', dedup_key, action, actor, reason, partition_key, operation_id) FROM audit_record";
    assert_eq!(world.rows::<String>(audit, ()).await, [format!("admit:{id} admit {REQUESTER} CHG-7 default {id}")]);
    assert_eq!(world.rows::<String>("SELECT dedup_key FROM outbox", ()).await, [format!("request.admitted:{id}:1")]);
    let content: String = world.scalar("SELECT content FROM operation_content", ()).await;
    let files: serde_json::Value = serde_json::from_str(&content).expect("JSON");
    assert_eq!(files[0]["path"], "access/db/alice.json");
    let written: serde_json::Value = serde_json::from_str(files[0]["content"].as_str().expect("text")).expect("JSON");
    assert_eq!(written, json!({ "subject_id": "alice", "target_key": "db", "attributes": { "role": "reader" } }));
    world.assert_invariants().await;
}

#[tokio::test]
async fn the_same_key_and_body_are_replayed() {
    let world = World::new().await;
    let first = Admit { key: key("k"), ..admit(grant("alice", "db")) };
    let AdmitOutcome::Admitted(admission) = world.run(&first).await else { panic!("not admitted") };
    let before = world.snapshot().await;
    let again = Admit { key: key("k"), ..admit(grant("alice", "db")) };
    assert_eq!(world.run(&again).await, AdmitOutcome::Replayed(admission));
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn a_replay_tells_the_state_of_now() {
    let world = World::new().await;
    let first = Admit { key: key("k"), ..admit(grant("alice", "db")) };
    let AdmitOutcome::Admitted(admission) = world.run(&first).await else { panic!("not admitted") };
    let batch = world.claimed("round-1").await;
    let again = Admit { key: key("k"), ..admit(grant("alice", "db")) };
    assert_eq!(world.run(&again).await, AdmitOutcome::Replayed(Admission { status: OperationStatus::InBatch, ..admission.clone() }));
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    assert_eq!(world.run(&again).await, AdmitOutcome::Replayed(Admission { status: OperationStatus::Merged, ..admission }));
}

#[tokio::test]
async fn another_principal_may_use_the_same_key() {
    let world = World::new().await;
    let one = Admit { key: key("k"), principal: principal("one"), ..admit(grant("alice", "db")) };
    let two = Admit { key: key("k"), principal: principal("two"), ..admit(grant("bob", "db")) };
    assert!(matches!(world.run(&one).await, AdmitOutcome::Admitted(admission) if admission.operation == one.operation));
    assert!(matches!(world.run(&two).await, AdmitOutcome::Admitted(admission) if admission.operation == two.operation));
    assert_eq!(world.count("idempotency_record WHERE request_key = 'k'").await, 2);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_relationship_that_was_rejected_is_applied_for_anew_in_its_row() {
    let world = World::new().await;
    let first = world.admitted(grant("alice", "db")).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler-1")).await, SettleOutcome::Settled);
    assert_eq!(binding(&world).await, format!("4 {first} -"));
    let second = world.admitted(grant("alice", "db")).await;
    assert_eq!(binding(&world).await, format!("1 {second} -"));
    assert_eq!(world.count("binding").await, 1);
    let history = "SELECT CONCAT_WS(' ', operation_id, IFNULL(from_status, '-'), to_status) FROM binding_history ORDER BY id";
    assert_eq!(world.rows::<String>(history, ()).await, [format!("{first} - 1"), format!("{first} 1 4"), format!("{second} 4 1")]);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_relationship_that_was_closed_is_applied_for_anew_in_its_row() {
    let world = World::new().await;
    let first = world.admitted(grant("alice", "db")).await;
    assert_eq!(world.run(&withdraw(&first)).await, WithdrawOutcome::Withdrawn);
    assert_eq!(binding(&world).await, format!("6 {first} -"));
    let second = world.admitted(grant("alice", "db")).await;
    assert_eq!(binding(&world).await, format!("1 {second} -"));
    assert_eq!(world.count("binding").await, 1);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_revoke_deletes_what_its_grant_wrote_whatever_the_template_says_by_then() {
    let world = World::new().await;
    let granted = world.admitted(grant("alice", "db")).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    world.sql("UPDATE merge_partition SET path_template = 'access/v2/{target_key}/{subject_id}.yaml'", ()).await;
    let revoked = world.admitted(revoke("alice", "db")).await;
    let paths = "SELECT CONCAT_WS(' ', path, deletes) FROM request_path WHERE operation_id = ?";
    assert_eq!(world.rows::<String>(paths, (&revoked,)).await, ["access/db/alice.json 1"]);
    assert_eq!(binding(&world).await, format!("3 {revoked} {granted}"));
    world.assert_invariants().await;
}

#[tokio::test]
async fn an_unknown_target_is_created_uncounted_in_the_default_partition() {
    let world = World::new().await.with_partition("team-a").await;
    world.admitted(grant("alice", "db")).await;
    let targets = "SELECT CONCAT_WS(' ', target_key, partition_key, IFNULL(capacity, '-'), used) FROM target";
    assert_eq!(world.rows::<String>(targets, ()).await, ["db default - 0"]);
}

#[tokio::test]
async fn a_request_goes_to_the_partition_of_its_target() {
    let world = World::new().await.with_partition("team-a").await.with_target("db", "team-a", None).await;
    let operation = world.admitted(grant("alice", "db")).await;
    for table in ["operation", "merge_batch_request", "request_path", "outbox", "audit_record"] {
        let partition: String = world.scalar(&format!("SELECT partition_key FROM {table} WHERE operation_id = ?"), (&operation,)).await;
        assert_eq!(partition, "team-a", "{table}");
    }
}

#[tokio::test]
async fn ids_are_one_component_of_the_templates_path_each() {
    let world = World::new().await;
    world.admitted(grant("team/ops@example.com:1+2", "arn:db/main")).await;
    let paths = world.rows::<String>("SELECT path FROM request_path", ()).await;
    assert_eq!(paths, ["access/arn%3Adb%2Fmain/team%2Fops%40example.com%3A1%2B2.json"]);
}

#[tokio::test]
async fn a_seat_is_taken_by_a_grant_and_kept_by_its_revoke() {
    let world = World::new().await.with_target("db", "default", Some(1)).await;
    world.admitted(grant("alice", "db")).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    world.admitted(revoke("alice", "db")).await;
    let full = admit(grant("bob", "db"));
    assert_eq!(world.run(&full).await, AdmitOutcome::SeatsExhausted { capacity: 1, used: 1 });
    let batch = world.claimed("round-2").await;
    assert_eq!(world.run(&succeed(batch, "settler-2")).await, SettleOutcome::Settled);
    world.admitted(grant("bob", "db")).await;
    world.assert_invariants().await;
}

/// Status, operation and granting operation of the only relationship.
async fn binding(world: &World) -> String {
    world.scalar("SELECT CONCAT_WS(' ', status, operation_id, IFNULL(granted_by_operation_id, '-')) FROM binding", ()).await
}
