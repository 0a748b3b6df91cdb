//! What is known of a FAILED request before Git is asked about it.

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId};
use crate::request::FileChange;
use crate::state::OperationStatus;
use crate::store::Store;

/// A request, whatever its state, with the batches that may have carried it.
#[derive(Debug, Clone)]
pub struct Carriers {
    pub status: OperationStatus,
    pub version: u64,
    /// Batches that did not expel it, the latest first.
    pub batches: Vec<BatchId>,
}

/// A request is claimed once for each of its attempts, and they are limited.
const BATCHES_MAX: u32 = 50;

const READ_STATE: &str = "/* failed.read_state */ SELECT status, version FROM operation WHERE operation_id = ?";

const LIST_CARRIERS: &str = "/* failed.list_carriers */ \
    SELECT batch_id FROM merge_batch_member FORCE INDEX (idx_operation) \
    WHERE operation_id = ? AND (outcome IS NULL OR outcome <> 6) ORDER BY batch_id DESC LIMIT ?";

const READ_CONTENT: &str = "/* failed.read_content */ SELECT content FROM operation_content WHERE operation_id = ?";

/// `None`: there is no such request.
pub async fn carriers(store: &Store, operation: &OperationId) -> Result<Option<Carriers>, StoreError> {
    let Some((status, version)) = store.first::<(i64, u64)>(READ_STATE, (operation,)).await? else { return Ok(None) };
    let batches = store.rows::<(u64,)>(LIST_CARRIERS, (operation, BATCHES_MAX)).await?;
    let batches = batches.into_iter().map(|(id,)| BatchId(id)).collect();
    Ok(Some(Carriers { status: OperationStatus::from_code(status)?, version, batches }))
}

/// The change that a request asks for; kept for as long as it has not ended.
pub async fn content(store: &Store, operation: &OperationId) -> Result<Vec<FileChange>, StoreError> {
    let gone = || StoreError::corrupt(format!("the content of request {operation} is gone"));
    let (content,) = store.first::<(String,)>(READ_CONTENT, (operation,)).await?.ok_or_else(gone)?;
    serde_json::from_str(&content).map_err(|why| StoreError::corrupt(format!("content of request {operation}: {why}")))
}
