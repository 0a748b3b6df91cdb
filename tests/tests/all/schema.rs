//! What the CHECKs refuse by themselves, whatever the code does.

use std::collections::BTreeSet;

use muster_tests::codes::{is_check_violation, names_check};
use muster_tests::rows::{ID, insert};
use muster_tests::*;
use mysql_async::prelude::Queryable;
use shared::StoreError;
use shared::state::{Action, BatchStatus, BindingStatus, FailCause, MemberOutcome, OperationStatus, Trigger};

type Wrong = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// CHECK, table, and what makes a right row break that CHECK and no other.
const WRONG_ROWS: &[Wrong] = &[
    ("ck_partition_key", "merge_partition", &[("partition_key", "''")]),
    ("ck_partition_key", "merge_partition", &[("partition_key", "'-a'")]),
    ("ck_partition_key", "merge_partition", &[("partition_key", "'a/b'")]),
    ("ck_partition_key", "merge_partition", &[("partition_key", "'a\\n'")]),
    ("ck_partition_template", "merge_partition", &[("path_template", "'a/{subject_id}'")]),
    ("ck_partition_template", "merge_partition", &[("path_template", "'a/{target_key}'")]),
    ("ck_partition_template", "merge_partition", &[("path_template", "'a/{subjectXid}/{target_key}'")]),
    ("ck_partition_prefixes", "merge_partition", &[("allowed_prefixes", "JSON_ARRAY()")]),
    ("ck_partition_sizes", "merge_partition", &[("max_requests", "1001"), ("content_attempts", "20")]),
    ("ck_partition_sizes", "merge_partition", &[("min_requests", "0")]),
    ("ck_partition_sizes", "merge_partition", &[("min_requests", "101")]),
    ("ck_partition_sizes", "merge_partition", &[("max_bytes", "262143")]),
    ("ck_partition_limits", "merge_partition", &[("not_started_s", "0")]),
    ("ck_partition_limits", "merge_partition", &[("no_progress_s", "0")]),
    ("ck_partition_limits", "merge_partition", &[("total_s", "0")]),
    ("ck_partition_limits", "merge_partition", &[("infra_attempts", "0")]),
    ("ck_partition_attempts", "merge_partition", &[("max_requests", "1000"), ("content_attempts", "10")]),
    ("ck_partition_attempts", "merge_partition", &[("content_attempts", "7")]),
    ("ck_partition_pause", "merge_partition", &[("pause_reason", "'freeze'")]),
    ("ck_partition_pause", "merge_partition", &[("pause_by", "'somebody'")]),
    ("ck_partition_pause", "merge_partition", &[("pause_until", "CURRENT_TIMESTAMP(6)")]),
    ("ck_batch_status", "merge_batch", &[("status", "0")]),
    ("ck_batch_status", "merge_batch", &[("status", "5")]),
    ("ck_batch_settled", "merge_batch", &[("status", "2")]),
    ("ck_batch_settled", "merge_batch", &[("status", "1"), ("settled_at", "CURRENT_TIMESTAMP(6)"), ("settled_by", "'x'")]),
    ("ck_batch_settled", "merge_batch", &[("status", "3"), ("settled_at", "CURRENT_TIMESTAMP(6)")]),
    ("ck_batch_settled", "merge_batch", &[("settled_by", "'x'")]),
    ("ck_batch_fail", "merge_batch", &[("fail_code", "'x'")]),
    ("ck_batch_fail", "merge_batch", &[("fail_code", "'x'"), ("fail_cause", "1")]),
    ("ck_batch_fail", "merge_batch", &[("fail_cause", "1"), ("fail_at", "CURRENT_TIMESTAMP(6)")]),
    ("ck_batch_fail", "merge_batch", &[("fail_code", "'x'"), ("fail_cause", "4"), ("fail_at", "CURRENT_TIMESTAMP(6)")]),
    ("ck_batch_late", "merge_batch", &[("late_merged_at", "CURRENT_TIMESTAMP(6)")]),
    ("ck_batch_trigger", "merge_batch", &[("trigger_kind", "0")]),
    ("ck_batch_trigger", "merge_batch", &[("trigger_kind", "4")]),
    ("ck_request_operation", "merge_batch_request", &[("operation_id", "''")]),
    ("ck_request_suspect", "merge_batch_request", &[("suspect_of", "1")]),
    ("ck_request_suspect", "merge_batch_request", &[("peer_limit", "1")]),
    ("ck_request_suspect", "merge_batch_request", &[("suspect_of", "1"), ("peer_limit", "0")]),
    ("ck_path_length", "request_path", &[("path", "''")]),
    ("ck_path_deletes", "request_path", &[("deletes", "2")]),
    ("ck_member_outcome", "merge_batch_member", &[("outcome", "0")]),
    ("ck_member_outcome", "merge_batch_member", &[("outcome", "7")]),
    ("ck_operation_id", "operation", &[("operation_id", "''")]),
    ("ck_operation_id", "operation", &[("operation_id", "'01890000-0000-4000-8000-000000000001'")]),
    ("ck_operation_id", "operation", &[("operation_id", "'01890000-0000-7000-8000-00000000000A'")]),
    ("ck_operation_subject", "operation", &[("subject_id", "''")]),
    ("ck_operation_subject", "operation", &[("subject_id", "'a b'")]),
    ("ck_operation_subject", "operation", &[("subject_id", "'a\\n'")]),
    ("ck_operation_subject", "operation", &[("subject_id", "'..'")]),
    ("ck_operation_target", "operation", &[("target_key", "''")]),
    ("ck_operation_target", "operation", &[("target_key", "'.'")]),
    ("ck_operation_target", "operation", &[("target_key", "'a*'")]),
    ("ck_operation_status", "operation", &[("status", "0")]),
    ("ck_operation_status", "operation", &[("status", "8")]),
    ("ck_operation_action", "operation", &[("action", "3")]),
    ("ck_operation_priority", "operation", &[("priority", "-1")]),
    ("ck_operation_priority", "operation", &[("priority", "10")]),
    ("ck_operation_settled", "operation", &[("status", "3")]),
    ("ck_operation_settled", "operation", &[("settled_at", "CURRENT_TIMESTAMP(6)")]),
    ("ck_operation_in_batch", "operation", &[("status", "2")]),
    ("ck_binding_subject", "binding", &[("subject_id", "''")]),
    ("ck_binding_target", "binding", &[("target_key", "''")]),
    ("ck_binding_operation", "binding", &[("operation_id", "'x'")]),
    ("ck_binding_status", "binding", &[("status", "0")]),
    ("ck_binding_status", "binding", &[("status", "7")]),
    ("ck_binding_granted", "binding", &[("status", "2")]),
    ("ck_binding_granted", "binding", &[("status", "3")]),
    ("ck_audit_key", "audit_record", &[("dedup_key", "''")]),
    ("ck_idempotency_principal", "idempotency_record", &[("principal", "''")]),
    ("ck_idempotency_principal", "idempotency_record", &[("principal", "'a b'")]),
    ("ck_idempotency_key", "idempotency_record", &[("request_key", "''")]),
    ("ck_idempotency_key", "idempotency_record", &[("request_key", "' k'")]),
    ("ck_idempotency_key", "idempotency_record", &[("request_key", "'k '")]),
    ("ck_idempotency_key", "idempotency_record", &[("request_key", "'k\\n'")]),
    ("ck_outbox_kind", "outbox", &[("kind", "'mail'")]),
    ("ck_outbox_lease", "outbox", &[("lease_token", "REPEAT('l', 16)")]),
    ("ck_outbox_lease", "outbox", &[("leased_until", "CURRENT_TIMESTAMP(6)")]),
    ("ck_outbox_end", "outbox", &[("delivered_at", "CURRENT_TIMESTAMP(6)"), ("given_up_at", "CURRENT_TIMESTAMP(6)")]),
    ("ck_target_key", "target", &[("target_key", "''")]),
    ("ck_target_key", "target", &[("target_key", "'a b'")]),
    ("ck_target_key", "target", &[("target_key", "'.'")]),
];

#[tokio::test]
async fn every_check_refuses_the_row_it_is_there_for() {
    let world = World::empty().await;
    // MariaDB adds one of its own to each JSON column, called as the column is.
    let named = "SELECT LOWER(constraint_name) FROM information_schema.check_constraints \
                 WHERE constraint_schema = DATABASE() AND constraint_name LIKE 'ck\\_%'";
    let in_the_schema: BTreeSet<String> = world.rows::<String>(named, ()).await.into_iter().collect();
    let tested: BTreeSet<String> = WRONG_ROWS.iter().map(|(check, ..)| (*check).to_owned()).collect();
    assert_eq!(tested, in_the_schema, "a CHECK without a row that it refuses may as well not be there");
    let tables: BTreeSet<&str> = WRONG_ROWS.iter().map(|(_, table, _)| *table).collect();
    for table in tables {
        world.sql(&insert(table, &[]), ()).await;
        world.sql(&format!("DELETE FROM {table}"), ()).await;
    }
    for (check, table, otherwise) in WRONG_ROWS {
        let (code, message) = world.sql_refused(&insert(table, otherwise), ()).await;
        assert!(is_check_violation(code) && names_check(&message, check), "{table} {otherwise:?}: {code} {message}");
    }
    // Breaks two at once: which of them is named depends on the sql_mode.
    let (code, message) = world.sql_refused(&insert("merge_partition", &[("max_requests", "0")]), ()).await;
    assert!(is_check_violation(code), "{code} {message}");
}

#[tokio::test]
async fn the_schema_and_the_code_know_the_same_states() {
    let world = World::empty().await;
    let settled = ("settled_at", "CURRENT_TIMESTAMP(6)");
    type Known = fn(i64) -> Result<(), StoreError>;
    let columns: [(&str, &str, Known); 7] = [
        ("operation", "status", |code| OperationStatus::from_code(code).map(drop)),
        ("operation", "action", |code| Action::from_code(code).map(drop)),
        ("binding", "status", |code| BindingStatus::from_code(code).map(drop)),
        ("merge_batch", "status", |code| BatchStatus::from_code(code).map(drop)),
        ("merge_batch", "trigger_kind", |code| Trigger::from_code(code).map(drop)),
        ("merge_batch", "fail_cause", |code| FailCause::from_code(code).map(drop)),
        ("merge_batch_member", "outcome", |code| MemberOutcome::from_code(code).map(drop)),
    ];
    for (table, column, known) in columns {
        for code in -1..=12 {
            let value = code.to_string();
            let mut row: Vec<(&'static str, &str)> = vec![(column, &value)];
            match (table, column) {
                ("operation", "status") => {
                    row.push(("batch_id", "1"));
                    row.extend(OperationStatus::from_code(code).is_ok_and(OperationStatus::is_terminal).then_some(settled));
                }
                ("merge_batch", "status") if BatchStatus::from_code(code).is_ok_and(|status| !status.is_active()) => {
                    row.extend([settled, ("settled_by", "'somebody'")]);
                }
                ("merge_batch", "fail_cause") => row.extend([("fail_code", "'x'"), ("fail_at", "CURRENT_TIMESTAMP(6)")]),
                ("binding", "status") => row.push(("granted_by_operation_id", ID)),
                _ => {}
            }
            let sql = insert(table, &row);
            if known(code).is_ok() {
                world.sql(&sql, ()).await;
                world.sql(&format!("DELETE FROM {table}"), ()).await;
            } else {
                assert!(is_check_violation(world.sql_refused(&sql, ()).await.0), "{table}.{column} {code}");
            }
        }
    }
}

#[tokio::test]
async fn the_checks_hold_whatever_the_session_forgot_to_set() {
    // A session of a person: local time, lax mode. The CHECKs and the collations do not depend on it.
    let world = World::empty().await;
    let mut lax = world.session().await;
    lax.query_drop("SET SESSION sql_mode = '', time_zone = '+09:00'").await.expect("set");
    for (check, table, otherwise) in WRONG_ROWS {
        let refused = lax.query_drop(insert(table, otherwise)).await.expect_err("a broken CHECK");
        assert!(refused.to_string().contains(check), "{table} {otherwise:?}: {refused}");
    }
}
