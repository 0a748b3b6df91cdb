//! Right rows of each table, to be made wrong in one column at a time.

/// The operation that these rows belong to, as SQL.
pub const ID: &str = "'01890000-0000-7000-8000-000000000001'";

/// A right row of each table, as SQL expressions.
fn right_row(table: &str) -> Vec<(&'static str, String)> {
    let texts: &[(&str, &str)] = match table {
        "merge_partition" => &[
            ("partition_key", "'p'"),
            ("project", "'acme/x'"),
            ("target_branch", "'main'"),
            ("path_template", "'a/{subject_id}/{target_key}'"),
            ("allowed_prefixes", "JSON_ARRAY('a/')"),
        ],
        "merge_batch" => {
            &[("partition_key", "'p'"), ("claim_token", "REPEAT('t', 16)"), ("trigger_kind", "1"), ("requested_by", "'somebody'")]
        }
        "merge_batch_request" => &[("operation_id", ID), ("partition_key", "'p'"), ("rank_at", "CURRENT_TIMESTAMP(6)"), ("bytes", "1")],
        "request_path" => &[("operation_id", ID), ("path", "'a/x'"), ("partition_key", "'p'"), ("deletes", "0")],
        "merge_batch_member" => &[("batch_id", "1"), ("operation_id", ID), ("position", "0")],
        "operation" => &[
            ("operation_id", ID),
            ("partition_key", "'p'"),
            ("subject_id", "'s'"),
            ("target_key", "'t'"),
            ("action", "1"),
            ("status", "1"),
            ("requested_by", "'somebody'"),
        ],
        "binding" => &[("subject_id", "'s'"), ("target_key", "'t'"), ("status", "1"), ("operation_id", ID)],
        "audit_record" => &[("dedup_key", "'k'"), ("action", "'test'"), ("actor", "'somebody'")],
        "idempotency_record" => &[
            ("principal", "'p'"),
            ("request_key", "'k'"),
            ("payload_hash", "REPEAT('h', 32)"),
            ("operation_id", ID),
            ("expires_at", "CURRENT_TIMESTAMP(6)"),
        ],
        "outbox" => &[("dedup_key", "'k'"), ("kind", "'publish'"), ("partition_key", "'p'"), ("payload", "JSON_OBJECT()")],
        "target" => &[("target_key", "'t'"), ("partition_key", "'p'")],
        other => panic!("no right row of {other}"),
    };
    texts.iter().map(|(column, value)| (*column, (*value).to_owned())).collect()
}

/// INSERT of a right row with some columns set otherwise.
pub fn insert(table: &str, otherwise: &[(&'static str, &str)]) -> String {
    let mut row = right_row(table);
    for (column, value) in otherwise {
        row.retain(|(name, _)| name != column);
        row.push((column, (*value).to_owned()));
    }
    let columns: Vec<&str> = row.iter().map(|(column, _)| *column).collect();
    let values: Vec<&str> = row.iter().map(|(_, value)| value.as_str()).collect();
    format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), values.join(", "))
}
