//! What the keys and types of the tables hold by themselves, whatever the code does.

use muster_tests::codes::{DUPLICATE, is_write_to_generated};
use muster_tests::rows::insert;
use muster_tests::*;

#[tokio::test]
async fn a_partition_has_one_active_batch_and_any_number_of_settled_ones() {
    let world = World::empty().await;
    let ended = [("status", "3"), ("settled_at", "CURRENT_TIMESTAMP(6)"), ("settled_by", "'x'")];
    for token in ["'one.............'", "'two.............'"] {
        world.sql(&insert("merge_batch", &[&ended[..], &[("claim_token", token)]].concat()), ()).await;
    }
    world.sql(&insert("merge_batch", &[("claim_token", "'three...........'")]), ()).await;
    for status in ["1", "4"] {
        let second = insert("merge_batch", &[("claim_token", "'four............'"), ("status", status)]);
        let (code, message) = world.sql_refused(&second, ()).await;
        assert!(code == DUPLICATE && message.contains("uk_active_slot"), "{code} {message}");
    }
    // Reopening takes the slot as well, and blocking keeps it.
    let reopen = "UPDATE merge_batch SET status = 1, settled_at = NULL, settled_by = NULL WHERE claim_token = 'one.............'";
    let (code, message) = world.sql_refused(reopen, ()).await;
    assert!(code == DUPLICATE && message.contains("uk_active_slot"), "{code} {message}");
    world.sql("UPDATE merge_batch SET status = 4 WHERE status = 1", ()).await;
    assert_eq!(world.sql_refused(reopen, ()).await.0, DUPLICATE);
    world.sql(&insert("merge_batch", &[("claim_token", "'five............'"), ("partition_key", "'q'")]), ()).await;
}

#[tokio::test]
async fn nobody_writes_the_slot_by_hand() {
    let world = World::empty().await;
    let (code, message) = world.sql_refused(&insert("merge_batch", &[("active_slot", "NULL + 2")]), ()).await;
    assert!(is_write_to_generated(code), "{code} {message}");
}

#[tokio::test]
async fn a_token_a_request_and_a_merge_request_belong_to_one_batch() {
    let world = World::empty().await;
    world.sql(&insert("merge_batch", &[("mr_iid", "7")]), ()).await;
    let ended = [("status", "2"), ("settled_at", "CURRENT_TIMESTAMP(6)"), ("settled_by", "'x'")];
    let (code, message) = world.sql_refused(&insert("merge_batch", &ended), ()).await;
    assert!(code == DUPLICATE && message.contains("uk_claim_token"), "{code} {message}");
    let other = [&ended[..], &[("claim_token", "REPEAT('u', 16)"), ("mr_iid", "7")]].concat();
    let (code, message) = world.sql_refused(&insert("merge_batch", &other), ()).await;
    assert!(code == DUPLICATE && message.contains("uk_partition_mr"), "{code} {message}");
    world.sql(&insert("merge_batch", &[&other[..], &[("partition_key", "'q'")]].concat()), ()).await;
    world.sql(&insert("merge_batch_request", &[]), ()).await;
    let (code, message) = world.sql_refused(&insert("merge_batch_request", &[]), ()).await;
    assert!(code == DUPLICATE && message.contains("uk_operation_id"), "{code} {message}");
}

#[tokio::test]
async fn ids_that_differ_in_case_only_are_two() {
    let world = World::empty().await;
    let twins: [(&str, &'static str, &str, &str); 6] = [
        ("binding", "subject_id", "'alice'", "'Alice'"),
        ("binding", "target_key", "'db'", "'DB'"),
        ("target", "target_key", "'db'", "'DB'"),
        ("idempotency_record", "request_key", "'key'", "'KEY'"),
        ("request_path", "path", "'a/x'", "'a/X'"),
        ("outbox", "dedup_key", "'key'", "'Key'"),
    ];
    for (table, column, one, two) in twins {
        world.sql(&insert(table, &[(column, one)]), ()).await;
        world.sql(&insert(table, &[(column, two)]), ()).await;
        assert_eq!(world.count(&format!("{table} WHERE {column} = {one}")).await, 1, "{table}.{column}");
        let (code, _) = world.sql_refused(&insert(table, &[(column, one)]), ()).await;
        assert_eq!(code, DUPLICATE, "{table}.{column}");
    }
}

#[tokio::test]
async fn no_text_is_compared_by_a_collation_that_folds_and_no_time_is_cut_or_zoned() {
    let world = World::empty().await;
    let folding = "SELECT CONCAT_WS('.', table_name, column_name) FROM information_schema.columns \
                   WHERE table_schema = DATABASE() AND table_name <> 'refinery_schema_history' \
                     AND collation_name IS NOT NULL AND collation_name NOT IN ('ascii_bin', 'utf8mb4_bin')";
    assert_eq!(world.rows::<String>(folding, ()).await, Vec::<String>::new());
    let times = "SELECT CONCAT_WS('.', table_name, column_name) FROM information_schema.columns \
                 WHERE table_schema = DATABASE() AND table_name <> 'refinery_schema_history' \
                   AND data_type IN ('datetime', 'timestamp', 'date', 'time') AND column_type <> 'datetime(6)'";
    assert_eq!(world.rows::<String>(times, ()).await, Vec::<String>::new());
}

#[tokio::test]
async fn there_is_no_foreign_key_that_would_lock_the_gate_or_the_hot_row() {
    let world = World::empty().await;
    let keys = "SELECT constraint_name FROM information_schema.table_constraints \
                WHERE table_schema = DATABASE() AND constraint_type = 'FOREIGN KEY'";
    assert_eq!(world.rows::<String>(keys, ()).await, Vec::<String>::new());
}

#[tokio::test]
async fn every_table_but_the_append_only_ones_has_a_version() {
    let world = World::empty().await;
    let without = "SELECT CONCAT(t.table_name) FROM information_schema.tables t \
                   WHERE t.table_schema = DATABASE() AND t.table_name <> 'refinery_schema_history' AND NOT EXISTS ( \
                     SELECT 1 FROM information_schema.columns c WHERE c.table_schema = t.table_schema \
                       AND c.table_name = t.table_name AND c.column_name = 'version') ORDER BY 1";
    let append_only = ["audit_record", "binding_history", "idempotency_record", "merge_batch_member", "operation_content", "request_path"];
    assert_eq!(world.rows::<String>(without, ()).await, append_only);
}
