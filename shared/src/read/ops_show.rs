//! All that is known of one batch or one request, for an operator who wants to understand it.

use serde_json::{Map, Value, json};

use crate::error::StoreError;
use crate::ids::{BatchId, ClaimToken, OperationId, PartitionKey, branch_name};
use crate::store::Store;

/// Rows of one kind in one answer; a batch has at most 1,000 members.
const ROWS_MAX: u32 = 1_000;
const EFFECTS_MAX: u32 = 200;

macro_rules! time {
    ($column:literal) => {
        concat!("'", $column, "', DATE_FORMAT(", $column, ", '%Y-%m-%dT%H:%i:%s.%fZ')")
    };
}

const READ_BATCH: &str = concat!(
    "/* ops_show.read_batch */ SELECT JSON_OBJECT('batch_id', CAST(id AS CHAR), 'partition', partition_key, \
     'status', ELT(status, 'RUNNING', 'SUCCEEDED', 'FAILED', 'BLOCKED'), \
     'trigger', ELT(trigger_kind, 'scheduled', 'manual', 'follow_up'), 'requested_by', requested_by, \
     'mr_iid', CAST(mr_iid AS CHAR), 'mr_url', mr_url, 'start_sha', start_sha, 'head_sha', head_sha, 'merge_sha', merge_sha, \
     'fail_code', fail_code, 'fail_cause', ELT(fail_cause, 'content', 'infrastructure', 'rejected'), 'code', code, 'message', message, \
     'step', step, 'suspect_of', CAST(suspect_of AS CHAR), 'settled_by', settled_by, 'version', version, ",
    time!("created_at"),
    ", ",
    time!("updated_at"),
    ", ",
    time!("progress_at"),
    ", ",
    time!("fail_at"),
    ", ",
    time!("settled_at"),
    ", ",
    time!("late_merged_at"),
    "), LOWER(HEX(claim_token)), partition_key FROM merge_batch WHERE id = ?"
);

const READ_MEMBERS: &str = "/* ops_show.read_members */ \
    SELECT JSON_OBJECT('operation_id', m.operation_id, 'position', m.position, \
        'outcome', ELT(m.outcome, 'merged', 'requeued', 'rejected', 'failed', 'withdrawn', 'expelled'), 'evidence', m.evidence, \
        'subject_id', o.subject_id, 'target_key', o.target_key, 'action', ELT(o.action, 'grant', 'revoke'), \
        'status', ELT(o.status, 'WAITING', 'IN_BATCH', 'MERGED', 'REJECTED', 'FAILED', 'WITHDRAWN', 'CLOSED')) \
    FROM merge_batch_member m JOIN operation o ON o.operation_id = m.operation_id WHERE m.batch_id = ? ORDER BY m.position LIMIT ?";

macro_rules! select_effects {
    ($name:literal, $rest:literal) => {
        concat!(
            "/* ops_show.",
            $name,
            " */ SELECT JSON_OBJECT('key', dedup_key, 'kind', kind, 'attempts', attempts, 'last_error', last_error, ",
            time!("created_at"),
            ", ",
            time!("due_at"),
            ", ",
            time!("leased_until"),
            ", ",
            time!("delivered_at"),
            ", ",
            time!("given_up_at"),
            "), payload FROM outbox ",
            $rest
        )
    };
}

/// What is done to the forge before what is told to others, the latest first.
const READ_EFFECTS_OF_BATCH: &str = select_effects!(
    "read_effects_of_batch",
    "FORCE INDEX (idx_batch) WHERE batch_id = ? ORDER BY kind = 'publish', created_at DESC, dedup_key LIMIT ?"
);

/// A request's own effects are its events, whose keys begin with their type and its id.
const READ_EFFECTS_OF_OPERATION: &str = select_effects!(
    "read_effects_of_operation",
    "FORCE INDEX (PRIMARY) WHERE dedup_key LIKE ? OR dedup_key LIKE ? OR dedup_key LIKE ? OR dedup_key LIKE ? OR dedup_key LIKE ? \
     ORDER BY created_at DESC, dedup_key LIMIT ?"
);

const REQUEST_EVENTS: [&str; 5] = ["request.admitted", "request.merged", "request.rejected", "request.failed", "request.withdrawn"];

macro_rules! select_audit {
    ($name:literal, $rest:literal) => {
        concat!(
            "/* ops_show.",
            $name,
            " */ SELECT JSON_OBJECT('audit_id', dedup_key, 'action', action, 'actor', actor, 'reason', reason, ",
            time!("at"),
            "), before_state, after_state FROM audit_record ",
            $rest
        )
    };
}

const READ_AUDIT_OF_BATCH: &str =
    select_audit!("read_audit_of_batch", "FORCE INDEX (idx_batch) WHERE batch_id = ? ORDER BY at, dedup_key LIMIT ?");

const READ_AUDIT_OF_OPERATION: &str =
    select_audit!("read_audit_of_operation", "FORCE INDEX (idx_operation) WHERE operation_id = ? ORDER BY at, dedup_key LIMIT ?");

const READ_OPERATION: &str = concat!(
    "/* ops_show.read_operation */ SELECT JSON_OBJECT('operation_id', operation_id, 'partition', partition_key, \
     'subject_id', subject_id, 'target_key', target_key, 'action', ELT(action, 'grant', 'revoke'), \
     'status', ELT(status, 'WAITING', 'IN_BATCH', 'MERGED', 'REJECTED', 'FAILED', 'WITHDRAWN', 'CLOSED'), \
     'requested_by', requested_by, 'approval_ref', approval_ref, 'priority', priority, 'batch_id', CAST(batch_id AS CHAR), \
     'code', code, 'message', message, 'version', version, ",
    time!("expires_at"),
    ", ",
    time!("withdraw_requested_at"),
    ", ",
    time!("created_at"),
    ", ",
    time!("updated_at"),
    ", ",
    time!("settled_at"),
    "), subject_id, target_key FROM operation WHERE operation_id = ?"
);

const READ_BINDING: &str = concat!(
    "/* ops_show.read_binding */ SELECT JSON_OBJECT('status', \
         ELT(status, 'APPLYING', 'ACTIVE', 'REVOKING', 'REJECTED', 'FAILED', 'CLOSED'), 'operation_id', operation_id, \
     'granted_by_operation_id', granted_by_operation_id, 'expiry_rejections', expiry_rejections, 'version', version, ",
    time!("expires_at"),
    ", ",
    time!("updated_at"),
    ") FROM binding WHERE subject_id = ? AND target_key = ?"
);

const READ_WAITING_ROW: &str = concat!(
    "/* ops_show.read_waiting_row */ SELECT JSON_OBJECT('id', CAST(id AS CHAR), 'batch_id', CAST(batch_id AS CHAR), 'bytes', bytes, \
     'content_attempts', content_attempts, 'infra_attempts', infra_attempts, 'suspect_of', CAST(suspect_of AS CHAR), \
     'peer_limit', peer_limit, 'version', version, ",
    time!("rank_at"),
    ", ",
    time!("expires_at"),
    ") FROM merge_batch_request WHERE operation_id = ?"
);

const READ_PATHS: &str = "/* ops_show.read_paths */ \
    SELECT JSON_OBJECT('path', CONVERT(path USING utf8mb4), 'deletes', deletes) FROM request_path WHERE operation_id = ? ORDER BY path LIMIT ?";

/// Of the relationship, so that what came before and after this request is seen.
const READ_HISTORY: &str = concat!(
    "/* ops_show.read_history */ SELECT JSON_OBJECT('operation_id', operation_id, \
     'from', ELT(from_status, 'APPLYING', 'ACTIVE', 'REVOKING', 'REJECTED', 'FAILED', 'CLOSED'), \
     'to', ELT(to_status, 'APPLYING', 'ACTIVE', 'REVOKING', 'REJECTED', 'FAILED', 'CLOSED'), \
     'batch_id', CAST(batch_id AS CHAR), 'actor', actor, ",
    time!("at"),
    ") FROM binding_history FORCE INDEX (idx_relationship) WHERE subject_id = ? AND target_key = ? ORDER BY id DESC LIMIT ?"
);

const READ_MEMBERSHIPS: &str = "/* ops_show.read_memberships */ \
    SELECT JSON_OBJECT('batch_id', CAST(m.batch_id AS CHAR), 'position', m.position, \
        'outcome', ELT(m.outcome, 'merged', 'requeued', 'rejected', 'failed', 'withdrawn', 'expelled'), 'evidence', m.evidence, \
        'batch_status', ELT(b.status, 'RUNNING', 'SUCCEEDED', 'FAILED', 'BLOCKED'), 'mr_url', b.mr_url) \
    FROM merge_batch_member m FORCE INDEX (idx_operation) JOIN merge_batch b ON b.id = m.batch_id \
    WHERE m.operation_id = ? ORDER BY m.batch_id LIMIT ?";

/// One batch: its row, and as `branch` the name on the forge; `None`: there is none.
pub async fn batch_row(store: &Store, batch: BatchId) -> Result<Option<Value>, StoreError> {
    let Some((row, token, partition)) = store.first::<(String, String, String)>(READ_BATCH, (batch,)).await? else { return Ok(None) };
    let mut shown = parsed(&row)?;
    let partition = PartitionKey::parse(partition).map_err(|why| StoreError::corrupt(why.to_string()))?;
    shown["branch"] = json!(ClaimToken::from_hex(&token).map(|token| branch_name(&partition, token)));
    Ok(Some(shown))
}

/// One batch: its row, members in order, effects and audit.
pub async fn batch(store: &Store, batch: BatchId) -> Result<Option<Value>, StoreError> {
    let Some(mut shown) = batch_row(store, batch).await? else { return Ok(None) };
    shown["members"] = all_parsed(store.rows(READ_MEMBERS, (batch, ROWS_MAX)).await?)?;
    shown["effects"] = effects(store.rows(READ_EFFECTS_OF_BATCH, (batch, EFFECTS_MAX)).await?)?;
    shown["audit"] = audit(store.rows(READ_AUDIT_OF_BATCH, (batch, ROWS_MAX)).await?)?;
    Ok(Some(shown))
}

/// One request's row; `None`: there is none.
pub async fn operation_row(store: &Store, operation: &OperationId) -> Result<Option<Value>, StoreError> {
    let row = store.first::<(String, String, String)>(READ_OPERATION, (operation,)).await?;
    row.map(|(row, ..)| parsed(&row)).transpose()
}

/// One request: its row, its relationship with its history, files, waiting row, memberships, effects and audit.
pub async fn operation(store: &Store, operation: &OperationId) -> Result<Option<Value>, StoreError> {
    let Some((row, subject, target)) = store.first::<(String, String, String)>(READ_OPERATION, (operation,)).await? else {
        return Ok(None);
    };
    let mut shown = parsed(&row)?;
    shown["binding"] = first_parsed(store.first(READ_BINDING, (&subject, &target)).await?)?;
    shown["history"] = all_parsed(store.rows(READ_HISTORY, (&subject, &target, EFFECTS_MAX)).await?)?;
    shown["paths"] = all_parsed(store.rows(READ_PATHS, (operation, EFFECTS_MAX)).await?)?;
    shown["waiting_row"] = first_parsed(store.first(READ_WAITING_ROW, (operation,)).await?)?;
    shown["memberships"] = all_parsed(store.rows(READ_MEMBERSHIPS, (operation, ROWS_MAX)).await?)?;
    let [admitted, merged, rejected, failed, withdrawn] = REQUEST_EVENTS.map(|event| format!("{event}:{operation}:%"));
    let keys = (admitted, merged, rejected, failed, withdrawn, EFFECTS_MAX);
    shown["effects"] = effects(store.rows(READ_EFFECTS_OF_OPERATION, keys).await?)?;
    shown["audit"] = audit(store.rows(READ_AUDIT_OF_OPERATION, (operation, ROWS_MAX)).await?)?;
    Ok(Some(shown))
}

fn parsed(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|why| StoreError::corrupt(format!("a row that was to be shown: {why}")))
}

fn first_parsed(row: Option<(String,)>) -> Result<Value, StoreError> {
    row.map_or(Ok(Value::Null), |(row,)| parsed(&row))
}

fn all_parsed(rows: Vec<(String,)>) -> Result<Value, StoreError> {
    rows.iter().map(|(row,)| parsed(row)).collect()
}

fn effects(rows: Vec<(String, String)>) -> Result<Value, StoreError> {
    rows.iter().map(|(row, payload)| Ok(with(parsed(row)?, [("payload", parsed(payload)?)]))).collect()
}

fn audit(rows: Vec<(String, Option<String>, Option<String>)>) -> Result<Value, StoreError> {
    let state = |text: &Option<String>| text.as_deref().map_or(Ok(Value::Null), parsed);
    rows.iter().map(|(row, before, after)| Ok(with(parsed(row)?, [("before", state(before)?), ("after", state(after)?)]))).collect()
}

fn with<const N: usize>(row: Value, more: [(&str, Value); N]) -> Value {
    let mut row = match row {
        Value::Object(row) => row,
        _ => Map::new(),
    };
    row.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(row)
}
