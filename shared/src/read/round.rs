//! A batch as the relay and the settlement see it.

use serde_json::json;

use crate::decide::settlement::{Ours, Overdue};
use crate::error::StoreError;
use crate::ids::{BatchId, ClaimToken, OperationId, PartitionKey, branch_name};
use crate::request::FileChange;
use crate::state::BatchStatus;
use crate::store::Store;
use crate::transactions::batch_row::token_from;

/// Contents read by one statement: at most this many requests of at most 256 KiB.
const CONTENT_CHUNK: usize = 50;

/// A batch, its partition and their clocks.
#[derive(Debug, Clone)]
pub struct Round {
    pub id: BatchId,
    pub partition: PartitionKey,
    pub token: ClaimToken,
    pub status: BatchStatus,
    pub version: u64,
    pub fail_code: Option<String>,
    pub mr_iid: Option<u64>,
    pub mr_url: Option<String>,
    pub start_sha: Option<String>,
    pub head_sha: Option<String>,
    pub step: String,
    pub project: String,
    pub project_id: Option<u64>,
    pub target_branch: String,
    pub allowed_prefixes: Vec<String>,
    pub members: usize,
    infra_attempts: u64,
    infra_attempts_max: u64,
    overdue: Option<Overdue>,
}

impl Round {
    pub fn branch(&self) -> String {
        branch_name(&self.partition, self.token)
    }

    /// May its merge request be opened, armed or merged?
    pub fn may_proceed(&self) -> bool {
        self.status == BatchStatus::Running && self.fail_code.is_none()
    }

    /// Has `begin_fail` said why, and `fail` not yet ended it?
    pub fn is_failing(&self) -> bool {
        self.status.is_active() && self.fail_code.is_some()
    }

    pub fn ours(&self) -> Ours {
        Ours {
            status: self.status,
            failing: self.fail_code.is_some(),
            infra_attempts: self.infra_attempts,
            infra_attempts_max: self.infra_attempts_max,
            overdue: self.overdue,
        }
    }
}

const READ_BATCH: &str = "/* round.read_batch */ \
    SELECT b.partition_key, b.claim_token, b.status, b.fail_code, b.mr_iid, b.mr_url, b.start_sha, b.head_sha, b.step, \
           CASE WHEN b.mr_iid IS NULL AND b.runs_since < CURRENT_TIMESTAMP(6) - INTERVAL p.not_started_s SECOND THEN 1 \
                WHEN b.progress_at < CURRENT_TIMESTAMP(6) - INTERVAL p.no_progress_s SECOND THEN 2 \
                WHEN b.runs_since < CURRENT_TIMESTAMP(6) - INTERVAL p.total_s SECOND THEN 3 ELSE 0 END, b.version \
    FROM merge_batch b JOIN merge_partition p ON p.partition_key = b.partition_key WHERE b.id = ?";

const READ_PROJECT: &str = "/* round.read_project */ \
    SELECT project, project_id, target_branch, allowed_prefixes, infra_attempts FROM merge_partition WHERE partition_key = ?";

const COUNT_CLAIMED_ROWS: &str = "/* round.count_claimed_rows */ \
    SELECT COUNT(*), CAST(COALESCE(MAX(infra_attempts), 0) AS UNSIGNED) FROM merge_batch_request WHERE batch_id = ?";

const FIND_BY_TOKEN: &str = "/* round.find_by_token */ SELECT id FROM merge_batch WHERE claim_token = ?";

const FIND_BY_MERGE_REQUEST: &str = "/* round.find_by_merge_request */ \
    SELECT b.id FROM merge_partition p JOIN merge_batch b ON b.partition_key = p.partition_key AND b.mr_iid = ? WHERE p.project_id = ?";

const LIST_ACTIVE: &str = "/* round.list_active */ \
    SELECT id FROM merge_batch FORCE INDEX (idx_status_updated) WHERE status IN (1, 4) ORDER BY updated_at, id";

const LIST_MEMBERS_NOT_EXPELLED: &str = "/* round.list_members_not_expelled */ \
    SELECT operation_id FROM merge_batch_member WHERE batch_id = ? AND (outcome IS NULL OR outcome <> 6) ORDER BY position";

const READ_CONTENTS: &str = "/* round.read_contents */ \
    SELECT c.operation_id, c.content FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
    STRAIGHT_JOIN operation_content c FORCE INDEX (PRIMARY) ON c.operation_id = j.operation_id";

const NEXT_DUE_OF_BATCH: &str = "/* round.next_due_of_batch */ \
    SELECT GREATEST(0, TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), due_at)) FROM outbox FORCE INDEX (idx_batch) \
    WHERE batch_id = ? AND delivered_at IS NULL AND given_up_at IS NULL \
      AND (leased_until IS NULL OR leased_until <= CURRENT_TIMESTAMP(6)) ORDER BY due_at LIMIT 1";

/// Where a partition's rounds land: project path, the forge's number of it, and the target branch.
pub async fn project(store: &Store, partition: &PartitionKey) -> Result<Option<(String, Option<u64>, String)>, StoreError> {
    let row = store.first::<ProjectColumns>(READ_PROJECT, (partition,)).await?;
    Ok(row.map(|(project, project_id, target_branch, ..)| (project, project_id, target_branch)))
}

type BatchColumns = (String, Vec<u8>, i64, Option<String>, Option<u64>, Option<String>, Option<String>, Option<String>, String, i64, u64);
type ProjectColumns = (String, Option<u64>, String, String, u64);

pub async fn round(store: &Store, batch: BatchId) -> Result<Option<Round>, StoreError> {
    let Some(columns) = store.first::<BatchColumns>(READ_BATCH, (batch,)).await? else { return Ok(None) };
    let (partition, token, status, fail_code, mr_iid, mr_url, start_sha, head_sha, step, overdue, version) = columns;
    let missing = || StoreError::corrupt(format!("batch {batch} belongs to the partition {partition}, which does not exist"));
    let project_columns = store.first::<ProjectColumns>(READ_PROJECT, (&partition,)).await?.ok_or_else(missing)?;
    let (project, project_id, target_branch, prefixes, infra_attempts_max) = project_columns;
    let (members, infra_attempts) = store.first::<(usize, u64)>(COUNT_CLAIMED_ROWS, (batch,)).await?.unwrap_or_default();
    Ok(Some(Round {
        id: batch,
        token: token_from(&token)?,
        status: BatchStatus::from_code(status)?,
        version,
        fail_code,
        mr_iid,
        mr_url,
        start_sha,
        head_sha,
        step,
        project,
        project_id,
        target_branch,
        allowed_prefixes: serde_json::from_str(&prefixes)
            .map_err(|why| StoreError::corrupt(format!("allowed prefixes of {partition}: {why}")))?,
        partition: PartitionKey::parse(partition).map_err(|why| StoreError::corrupt(why.to_string()))?,
        members,
        infra_attempts,
        infra_attempts_max,
        overdue: [Overdue::NotStarted, Overdue::NoProgress, Overdue::Total].get((overdue - 1) as usize).copied(),
    }))
}

pub async fn find_by_token(store: &Store, token: ClaimToken) -> Result<Option<BatchId>, StoreError> {
    Ok(store.first::<(u64,)>(FIND_BY_TOKEN, (token,)).await?.map(|(id,)| BatchId(id)))
}

/// Finds a batch by what the forge calls it. A project may carry several partitions, so a number fits one of them.
pub async fn find_by_merge_request(store: &Store, project_id: u64, iid: u64) -> Result<Option<BatchId>, StoreError> {
    Ok(store.first::<(u64,)>(FIND_BY_MERGE_REQUEST, (iid, project_id)).await?.map(|(id,)| BatchId(id)))
}

/// Every RUNNING and BLOCKED batch, the longest untouched first.
pub async fn active_batches(store: &Store) -> Result<Vec<BatchId>, StoreError> {
    Ok(store.rows::<(u64,)>(LIST_ACTIVE, ()).await?.into_iter().map(|(id,)| BatchId(id)).collect())
}

/// The change of every member that was not expelled, in the order of the round.
///
/// # Errors
/// Corruption where the content of one is gone: an active batch needs all of them.
pub async fn contents(store: &Store, batch: BatchId) -> Result<Vec<(OperationId, Vec<FileChange>)>, StoreError> {
    let (all, gone) = read_contents(store, batch).await?;
    match gone {
        None => Ok(all),
        Some(id) => Err(StoreError::corrupt(format!("the content of request {id} in batch {batch} is gone"))),
    }
}

/// The same, as far as it is kept: of a settled batch some may have been purged.
pub async fn kept_contents(store: &Store, batch: BatchId) -> Result<Vec<(OperationId, Vec<FileChange>)>, StoreError> {
    Ok(read_contents(store, batch).await?.0)
}

type Contents = Vec<(OperationId, Vec<FileChange>)>;

/// What is kept, and one request whose content is not.
async fn read_contents(store: &Store, batch: BatchId) -> Result<(Contents, Option<String>), StoreError> {
    let ids: Vec<String> = store.rows::<(String,)>(LIST_MEMBERS_NOT_EXPELLED, (batch,)).await?.into_iter().map(|(id,)| id).collect();
    let mut all = Vec::with_capacity(ids.len());
    let mut gone = None;
    for chunk in ids.chunks(CONTENT_CHUNK) {
        let mut read: std::collections::BTreeMap<String, String> =
            store.rows::<(String, String)>(READ_CONTENTS, (json!(chunk).to_string(),)).await?.into_iter().collect();
        for id in chunk {
            let Some(content) = read.remove(id) else {
                gone = Some(id.clone());
                continue;
            };
            let files = serde_json::from_str(&content).map_err(|why| StoreError::corrupt(format!("content of request {id}: {why}")))?;
            all.push((OperationId::parse(id.clone()).map_err(|why| StoreError::corrupt(why.to_string()))?, files));
        }
    }
    Ok((all, gone))
}

/// Time until the batch's next undelivered effect is due; `None` where it has none.
pub async fn next_due(store: &Store, batch: BatchId) -> Result<Option<std::time::Duration>, StoreError> {
    Ok(store.first::<(u64,)>(NEXT_DUE_OF_BATCH, (batch,)).await?.map(|(micros,)| std::time::Duration::from_micros(micros)))
}
