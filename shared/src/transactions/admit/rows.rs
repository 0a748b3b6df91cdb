//! The rows an admission reads and writes.

use serde_json::json;

use crate::error::StoreError;
use crate::ids::{OperationId, PartitionKey, Principal, RequestKey};
use crate::moment::Moment;
use crate::outbox::{Effect, PublishedRequest};
use crate::request::{FileChange, Request};
use crate::state::{Action, BindingStatus, OperationStatus};
use crate::transactions::admit::{Admission, Admit};
use crate::tx::{Inserted, Tx};

const READ_IDEMPOTENCY: &str = "/* admit.read_idempotency */ \
    SELECT i.payload_hash, i.operation_id, o.status, DATE_FORMAT(o.created_at, '%Y-%m-%dT%H:%i:%s.%fZ') \
    FROM idempotency_record i JOIN operation o ON o.operation_id = i.operation_id WHERE i.principal = ? AND i.request_key = ?";

const READ_PARTITION: &str = "/* admit.read_partition */ \
    SELECT path_template, allowed_prefixes, closed_at IS NOT NULL, COALESCE(CAST(? AS DATETIME(6)) <= CURRENT_TIMESTAMP(6), 0) \
    FROM merge_partition WHERE partition_key = ?";

const READ_BINDING: &str = "/* admit.read_binding */ \
    SELECT status, operation_id, granted_by_operation_id, version FROM binding WHERE subject_id = ? AND target_key = ?";

const READ_GRANTED_PATHS: &str =
    "/* admit.read_granted_paths */ SELECT path FROM request_path WHERE operation_id = ? AND deletes = 0 ORDER BY path";

const INSERT_NEW_KEY: &str = "/* admit.insert_new_key */ \
    INSERT INTO idempotency_record (principal, request_key, payload_hash, operation_id, expires_at) \
    VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP(6) + INTERVAL 7 DAY)";

const INSERT_OPERATION: &str = "/* admit.insert_operation */ \
    INSERT INTO operation (operation_id, partition_key, subject_id, target_key, action, status, requested_by, approval_ref, priority, expires_at) \
    VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?)";

const READ_CREATED_AT: &str =
    "/* admit.read_created_at */ SELECT DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ') FROM operation WHERE operation_id = ?";

const INSERT_CONTENT: &str = "/* admit.insert_content */ INSERT INTO operation_content (operation_id, content) VALUES (?, ?)";

const INSERT_PATHS: &str = "/* admit.insert_paths */ \
    INSERT INTO request_path (operation_id, path, partition_key, deletes) \
    SELECT ?, CONVERT(j.path USING utf8mb4), ?, j.deletes FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        path VARCHAR(1024) CHARACTER SET utf8mb4 PATH '$.p', deletes TINYINT PATH '$.d')) AS j";

const INSERT_ABSENT_BINDING: &str = "/* admit.insert_absent_binding */ \
    INSERT INTO binding (subject_id, target_key, status, operation_id, expires_at) VALUES (?, ?, 1, ?, ?)";

/// Pins the exact old state that was read: status, operation and version.
const RESET_READ_BINDING: &str = "/* admit.reset_read_binding */ \
    UPDATE binding SET status = 1, operation_id = ?, granted_by_operation_id = NULL, expires_at = ?, expiry_rejections = 0, \
        updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE subject_id = ? AND target_key = ? AND status = ? AND operation_id = ? AND version = ?";

const REVOKE_ACTIVE_BINDING: &str = "/* admit.revoke_active_binding */ \
    UPDATE binding SET status = 3, operation_id = ?, updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE subject_id = ? AND target_key = ? AND status = 2 AND operation_id = ? AND version = ?";

const INSERT_BINDING_HISTORY: &str = "/* admit.insert_binding_history */ \
    INSERT INTO binding_history (subject_id, target_key, operation_id, from_status, to_status, actor) VALUES (?, ?, ?, ?, ?, ?)";

const INSERT_WAITING_ROW: &str = "/* admit.insert_waiting_row */ \
    INSERT INTO merge_batch_request (operation_id, partition_key, created_at, rank_at, bytes, expires_at) \
    SELECT operation_id, partition_key, created_at, created_at - INTERVAL (priority * 5) MINUTE, ?, IF(action = 1, expires_at, NULL) \
    FROM operation WHERE operation_id = ?";

const INSERT_AUDIT: &str = "/* admit.insert_audit */ \
    INSERT INTO audit_record (dedup_key, action, actor, reason, partition_key, operation_id, after_state) VALUES (?, 'admit', ?, ?, ?, ?, ?)";

pub(super) struct IdempotencyRecord {
    pub payload_hash: [u8; 32],
    pub admission: Admission,
}

pub(super) struct Partition {
    pub path_template: String,
    pub allowed_prefixes: Vec<String>,
    pub closed: bool,
    pub expires_in_the_past: bool,
}

pub(super) struct Binding {
    pub status: BindingStatus,
    pub operation: OperationId,
    granted_by: Option<String>,
    version: u64,
}

fn operation_from(id: String) -> Result<OperationId, StoreError> {
    OperationId::parse(id).map_err(|why| StoreError::corrupt(why.to_string()))
}

pub(super) async fn read_idempotency(
    tx: &mut Tx<'_>,
    principal: &Principal,
    key: &RequestKey,
) -> Result<Option<IdempotencyRecord>, StoreError> {
    let Some((hash, operation, status, created_at)) =
        tx.first::<(Vec<u8>, String, i64, String)>(READ_IDEMPOTENCY, (principal, key)).await?
    else {
        return Ok(None);
    };
    Ok(Some(IdempotencyRecord {
        payload_hash: hash.try_into().map_err(|_| StoreError::corrupt("a payload hash that is not 32 bytes long"))?,
        admission: Admission { operation: operation_from(operation)?, status: OperationStatus::from_code(status)?, created_at },
    }))
}

pub(super) async fn read_partition(
    tx: &mut Tx<'_>,
    key: &PartitionKey,
    expires_at: Option<Moment>,
) -> Result<Option<Partition>, StoreError> {
    let params = (expires_at.map(Moment::to_sql), key);
    let Some((path_template, prefixes, closed, past)) = tx.first::<(String, String, i64, i64)>(READ_PARTITION, params).await? else {
        return Ok(None);
    };
    let allowed_prefixes =
        serde_json::from_str(&prefixes).map_err(|why| StoreError::corrupt(format!("allowed prefixes of {key}: {why}")))?;
    Ok(Some(Partition { path_template, allowed_prefixes, closed: closed == 1, expires_in_the_past: past == 1 }))
}

pub(super) async fn read_binding(tx: &mut Tx<'_>, request: &Request) -> Result<Option<Binding>, StoreError> {
    let row = tx.first::<(i64, String, Option<String>, u64)>(READ_BINDING, (&request.subject, &request.target)).await?;
    row.map(|(status, operation, granted_by, version)| {
        Ok(Binding { status: BindingStatus::from_code(status)?, operation: operation_from(operation)?, granted_by, version })
    })
    .transpose()
}

pub(super) async fn read_granted_files(tx: &mut Tx<'_>, binding: Option<&Binding>) -> Result<Vec<FileChange>, StoreError> {
    let granted_by = binding.and_then(|binding| binding.granted_by.as_ref());
    let Some(granted_by) = granted_by else { return Err(StoreError::corrupt("an ACTIVE relationship that no operation granted")) };
    tx.rows::<(Vec<u8>,)>(READ_GRANTED_PATHS, (granted_by,))
        .await?
        .into_iter()
        .map(|(path,)| {
            let path = String::from_utf8(path).map_err(|_| StoreError::corrupt("a stored path is not UTF-8"))?;
            Ok(FileChange { path, content: None, base: None })
        })
        .collect()
}

pub(super) async fn insert_idempotency(tx: &mut Tx<'_>, admit: &Admit) -> Result<Inserted, StoreError> {
    let hash = admit.request.payload_hash().to_vec();
    tx.insert_new(INSERT_NEW_KEY, (&admit.principal, &admit.key, hash, &admit.operation)).await
}

/// Writes operation, content and paths; the answer is the operation's created_at.
pub(super) async fn insert_operation(
    tx: &mut Tx<'_>,
    admit: &Admit,
    partition: &PartitionKey,
    files: &[FileChange],
) -> Result<String, StoreError> {
    let request = &admit.request;
    let expires_at = request.expires_at.map(Moment::to_sql);
    let operation = (
        &admit.operation,
        partition,
        &request.subject,
        &request.target,
        request.action,
        &admit.principal,
        &request.approval_ref,
        request.priority,
        expires_at,
    );
    tx.write_exactly(1, INSERT_OPERATION, operation).await?;
    let created_at = tx.first::<(String,)>(READ_CREATED_AT, (&admit.operation,)).await?;
    let content = serde_json::to_string(files).map_err(|why| StoreError::corrupt(why.to_string()))?;
    tx.write_exactly(1, INSERT_CONTENT, (&admit.operation, content)).await?;
    if !files.is_empty() {
        let rows: Vec<_> = files.iter().map(|file| json!({ "p": file.path, "d": i64::from(file.content.is_none()) })).collect();
        tx.write_exactly(files.len(), INSERT_PATHS, (&admit.operation, partition, json!(rows).to_string())).await?;
    }
    created_at.map(|(at,)| at).ok_or_else(|| StoreError::corrupt("an operation just written could not be read"))
}

/// `false`: the relationship changed since it was read, so nothing here may stay.
pub(super) async fn apply_binding(tx: &mut Tx<'_>, admit: &Admit, binding: Option<&Binding>) -> Result<bool, StoreError> {
    let request = &admit.request;
    let expires_at = request.expires_at.map(Moment::to_sql);
    match (request.action, binding) {
        (_, None) => {
            let row = (&request.subject, &request.target, &admit.operation, expires_at);
            Ok(matches!(tx.insert_new(INSERT_ABSENT_BINDING, row).await?, Inserted::New(_)))
        }
        (Action::Grant, Some(old)) => {
            let row = (&admit.operation, expires_at, &request.subject, &request.target, old.status, &old.operation, old.version);
            Ok(tx.write(RESET_READ_BINDING, row).await? == 1)
        }
        (Action::Revoke, Some(old)) => {
            let row = (&admit.operation, &request.subject, &request.target, &old.operation, old.version);
            Ok(tx.write(REVOKE_ACTIVE_BINDING, row).await? == 1)
        }
    }
}

/// Writes history, waiting row, audit and event.
pub(super) async fn insert_waiting(
    tx: &mut Tx<'_>,
    admit: &Admit,
    partition: &PartitionKey,
    binding: Option<&Binding>,
    files: &[FileChange],
) -> Result<(), StoreError> {
    let request = &admit.request;
    let to = match request.action {
        Action::Grant => BindingStatus::Applying,
        Action::Revoke => BindingStatus::Revoking,
    };
    let history = (&request.subject, &request.target, &admit.operation, binding.map(|old| old.status), to, &admit.principal);
    tx.write_exactly(1, INSERT_BINDING_HISTORY, history).await?;
    let bytes: usize = files.iter().map(|file| file.path.len() + file.content.as_ref().map_or(0, String::len)).sum();
    tx.write_exactly(1, INSERT_WAITING_ROW, (bytes, &admit.operation)).await?;
    let after = json!({ "status": OperationStatus::Waiting.name(), "action": request.action.name(), "files": files.len() }).to_string();
    let audit = (format!("admit:{}", admit.operation), &admit.principal, &request.approval_ref, partition, &admit.operation, after);
    match tx.insert_new(INSERT_AUDIT, audit).await? {
        Inserted::New(_) | Inserted::Duplicate(_) => {} // A duplicate: already recorded.
    }
    let admitted = PublishedRequest {
        operation: &admit.operation,
        version: 1,
        partition,
        batch: None,
        subject_id: request.subject.as_str(),
        target_key: request.target.as_str(),
        action: request.action,
        status: OperationStatus::Waiting,
    };
    tx.emit(&[Effect::publish_request("request.admitted", &admitted)]).await
}
