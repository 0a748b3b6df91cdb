//! The waiting set as a round sees it.

use std::collections::BTreeMap;

use serde_json::json;

use crate::decide::claim_set::{Candidate, ClaimLimits, choose};
use crate::error::StoreError;
use crate::ids::{BatchId, OperationId, PartitionKey};
use crate::store::Store;
use crate::transactions::claim::{add_paths, candidates_from};
use crate::transactions::members::CHUNK;

/// A claim looks at this many times its limit, so that requests which wait for one another do not hide the rest.
pub const WINDOW_FACTOR: usize = 4;
/// Rows a claim looks at, at most.
pub const WINDOW_MAX: usize = 4_000;

pub const READ_OLDEST_WAITING: &str = "/* claim.read_oldest_waiting */ \
    SELECT id, operation_id, bytes, TIMESTAMPDIFF(SECOND, created_at, CURRENT_TIMESTAMP(6)), suspect_of, peer_limit \
    FROM merge_batch_request FORCE INDEX (idx_waiting_rank) \
    WHERE partition_key = ? AND batch_id IS NULL AND created_at < CURRENT_TIMESTAMP(6) \
      AND (expires_at IS NULL OR expires_at > CURRENT_TIMESTAMP(6)) \
    ORDER BY rank_at, id LIMIT ?";

pub const READ_PATHS_OF_WAITING: &str = "/* claim.read_paths_of_waiting */ \
    SELECT p.operation_id, p.path FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
    STRAIGHT_JOIN request_path p FORCE INDEX (PRIMARY) ON p.operation_id = j.operation_id";

/// Was the partition's last batch one of suspects? The next one is then of the others.
pub const READ_LAST_WAS_SUSPECTS: &str = "/* claim.read_last_was_suspects */ \
    SELECT suspect_of IS NOT NULL FROM merge_batch FORCE INDEX (idx_partition_created) \
    WHERE partition_key = ? AND id <> ? ORDER BY created_at DESC, id DESC LIMIT 1";

/// Columns of [`READ_OLDEST_WAITING`].
pub type WaitingColumns = (u64, String, u64, i64, Option<u64>, Option<u64>);

const PROBE_SLOT: &str = "/* round.probe_slot */ SELECT id FROM merge_batch WHERE partition_key = ? AND active_slot = 1";

const READ_LIMITS: &str = "/* round.read_limits */ \
    SELECT max_requests, max_bytes, IF(pause_until IS NULL OR pause_until > CURRENT_TIMESTAMP(6), pause_reason, NULL) \
    FROM merge_partition WHERE partition_key = ?";

const LIST_OPEN_PARTITIONS: &str = "/* round.list_open_partitions */ \
    SELECT p.partition_key FROM merge_partition p WHERE p.closed_at IS NULL OR EXISTS ( \
        SELECT 1 FROM merge_batch_request r WHERE r.partition_key = p.partition_key AND r.batch_id IS NULL) ORDER BY p.partition_key";

/// Partitions in which rounds may run, by key: also a closed one with a request that was admitted while it was being closed.
pub async fn open_partitions(store: &Store) -> Result<Vec<PartitionKey>, StoreError> {
    let rows = store.rows::<(String,)>(LIST_OPEN_PARTITIONS, ()).await?;
    rows.into_iter().map(|(key,)| PartitionKey::parse(key).map_err(|why| StoreError::corrupt(why.to_string()))).collect()
}

/// What a round would meet, read without any lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prospect {
    UnknownPartition,
    Paused { reason: String },
    SlotOccupied { batch: BatchId },
    NothingToClaim,
    Claimable { members: Vec<OperationId> },
}

/// The look before the claim: ends an idle round without taking the slot, and answers a dry run.
pub async fn prospect(store: &Store, partition: &PartitionKey, max_requests: Option<u32>) -> Result<Prospect, StoreError> {
    let Some((own_max, max_bytes, pause)) = store.first::<(u64, u64, Option<String>)>(READ_LIMITS, (partition,)).await? else {
        return Ok(Prospect::UnknownPartition);
    };
    if let Some(reason) = pause {
        return Ok(Prospect::Paused { reason });
    }
    if let Some((id,)) = store.first::<(u64,)>(PROBE_SLOT, (partition,)).await? {
        return Ok(Prospect::SlotOccupied { batch: BatchId(id) });
    }
    let limits = ClaimLimits { max_requests: own_max.min(max_requests.map_or(u64::MAX, u64::from)) as usize, max_bytes };
    let candidates = read_oldest(store, partition, limits).await?;
    if candidates.is_empty() {
        return Ok(Prospect::NothingToClaim);
    }
    let mut paths = BTreeMap::new();
    for chunk in candidates.chunks(CHUNK) {
        let ids = json!(chunk.iter().map(|one| &one.operation).collect::<Vec<_>>()).to_string();
        add_paths(&mut paths, store.rows(READ_PATHS_OF_WAITING, (ids,)).await?)?;
    }
    let last_was_suspects = store.first::<(i64,)>(READ_LAST_WAS_SUSPECTS, (partition, 0)).await? == Some((1,));
    let members = choose(&candidates, &paths, limits, last_was_suspects).members.into_iter().map(|one| one.operation).collect();
    Ok(Prospect::Claimable { members })
}

async fn read_oldest(store: &Store, partition: &PartitionKey, limits: ClaimLimits) -> Result<Vec<Candidate>, StoreError> {
    let window = (limits.max_requests * WINDOW_FACTOR).min(WINDOW_MAX);
    candidates_from(store.rows(READ_OLDEST_WAITING, (partition, window as u64)).await?)
}
