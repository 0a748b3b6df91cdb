//! What has expired, or waits for a close, as the sweep looks for it.

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId, SubjectId, TargetKey};
use crate::store::Store;

const LIST_EXPIRED_WAITING: &str = "/* expiry.list_expired_waiting */ \
    SELECT operation_id FROM merge_batch_request FORCE INDEX (idx_batch) \
    WHERE batch_id IS NULL AND expires_at <= CURRENT_TIMESTAMP(6) ORDER BY id LIMIT ? OFFSET ?";

const LIST_EXPIRED_BINDINGS: &str = "/* expiry.list_expired_bindings */ \
    SELECT subject_id, target_key, granted_by_operation_id, version FROM binding FORCE INDEX (idx_status_expires) \
    WHERE status = 2 AND expires_at <= CURRENT_TIMESTAMP(6) ORDER BY expires_at, subject_id, target_key LIMIT ? OFFSET ?";

const LIST_FAILED_WITHDRAWN: &str = "/* expiry.list_failed_withdrawn */ \
    SELECT operation_id, batch_id FROM operation FORCE INDEX (idx_status_operation) \
    WHERE status = 5 AND action = 1 AND withdraw_requested_at IS NOT NULL ORDER BY operation_id LIMIT ? OFFSET ?";

/// So many rows, after those that an earlier page of this pass left as they were: what was dealt with is not listed any more.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    pub limit: u32,
    pub skip: u32,
}

/// An access that has run out and is still ACTIVE.
#[derive(Debug, Clone)]
pub struct ExpiredBinding {
    pub subject: SubjectId,
    pub target: TargetKey,
    pub granted_by: Option<String>,
    pub version: u64,
}

impl ExpiredBinding {
    /// One key for each state of the relationship: a sweep that runs twice admits one revoke.
    pub fn idempotency_key(&self) -> String {
        format!("expire:{}:{}", self.granted_by.as_deref().unwrap_or("none"), self.version)
    }
}

/// Grants that expired before a round took them.
pub async fn expired_waiting(store: &Store, page: Page) -> Result<Vec<OperationId>, StoreError> {
    store.rows::<(String,)>(LIST_EXPIRED_WAITING, (page.limit, page.skip)).await?.into_iter().map(|(id,)| operation(id)).collect()
}

pub async fn expired_bindings(store: &Store, page: Page) -> Result<Vec<ExpiredBinding>, StoreError> {
    let rows = store.rows::<(String, String, Option<String>, u64)>(LIST_EXPIRED_BINDINGS, (page.limit, page.skip)).await?;
    rows.into_iter()
        .map(|(subject, target, granted_by, version)| {
            let subject = SubjectId::parse(subject).map_err(|why| StoreError::corrupt(why.to_string()))?;
            let target = TargetKey::parse(target).map_err(|why| StoreError::corrupt(why.to_string()))?;
            Ok(ExpiredBinding { subject, target, granted_by, version })
        })
        .collect()
}

/// FAILED grants that their requester wants closed, with the batch that carried them.
pub async fn failed_withdrawn(store: &Store, page: Page) -> Result<Vec<(OperationId, Option<BatchId>)>, StoreError> {
    let rows = store.rows::<(String, Option<u64>)>(LIST_FAILED_WITHDRAWN, (page.limit, page.skip)).await?;
    rows.into_iter().map(|(id, batch)| Ok((operation(id)?, batch.map(BatchId)))).collect()
}

fn operation(id: String) -> Result<OperationId, StoreError> {
    OperationId::parse(id).map_err(|why| StoreError::corrupt(why.to_string()))
}
