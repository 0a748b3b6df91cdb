//! What the next round of a partition would take, whether or not it may run now.

use std::collections::BTreeMap;

use serde_json::json;

use crate::decide::claim_set::{Candidate, Chosen, ClaimLimits, choose};
use crate::error::StoreError;
use crate::ids::{BatchId, OperationId, PartitionKey};
use crate::read::partitions::{Partition, partition};
use crate::read::waiting::{READ_LAST_WAS_SUSPECTS, READ_OLDEST_WAITING, READ_PATHS_OF_WAITING, WINDOW_FACTOR, WINDOW_MAX};
use crate::request::FileChange;
use crate::store::Store;
use crate::transactions::claim::{add_paths, candidates_from};
use crate::transactions::members::CHUNK;

/// Contents read by one statement: at most this many requests of at most 256 KiB.
const CONTENT_CHUNK: usize = 50;

/// The waiting set as the next round would see it, read without any lock.
#[derive(Debug, Clone)]
pub struct Plan {
    pub partition: Partition,
    /// The batch that holds the slot.
    pub holder: Option<BatchId>,
    /// What a round looks at, in its order.
    pub candidates: Vec<Candidate>,
    pub paths: BTreeMap<OperationId, Vec<String>>,
    pub chosen: Chosen,
}

impl Plan {
    /// Does a scheduled round leave them, for they are few and none has waited for long?
    pub fn is_held_back(&self) -> bool {
        let limits = &self.partition.settings.limits;
        let members = &self.chosen.members;
        self.chosen.suspect_of.is_none()
            && (members.len() as u64) < limits.min_requests
            && members.iter().all(|one| one.waited_s < limits.max_wait_s as i64)
    }
}

const PROBE_SLOT: &str = "/* plan.probe_slot */ SELECT id FROM merge_batch WHERE partition_key = ? AND active_slot = 1";

const READ_CONTENTS: &str = "/* plan.read_contents */ \
    SELECT c.operation_id, c.content FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
    STRAIGHT_JOIN operation_content c FORCE INDEX (PRIMARY) ON c.operation_id = j.operation_id";

/// `None`: there is no such partition.
pub async fn plan(store: &Store, key: &PartitionKey) -> Result<Option<Plan>, StoreError> {
    let Some(partition) = partition(store, key).await? else { return Ok(None) };
    let own = &partition.settings.limits;
    let limits = ClaimLimits { max_requests: own.max_requests as usize, max_bytes: own.max_bytes };
    let holder = store.first::<(u64,)>(PROBE_SLOT, (key,)).await?.map(|(id,)| BatchId(id));
    let window = (limits.max_requests * WINDOW_FACTOR).min(WINDOW_MAX);
    let candidates = candidates_from(store.rows(READ_OLDEST_WAITING, (key, window as u64)).await?)?;
    let mut paths = BTreeMap::new();
    for chunk in candidates.chunks(CHUNK) {
        let ids = json!(chunk.iter().map(|one| &one.operation).collect::<Vec<_>>()).to_string();
        add_paths(&mut paths, store.rows(READ_PATHS_OF_WAITING, (ids,)).await?)?;
    }
    let last_was_suspects = store.first::<(i64,)>(READ_LAST_WAS_SUSPECTS, (key, 0)).await? == Some((1,));
    let chosen = choose(&candidates, &paths, limits, last_was_suspects);
    let mut plan = Plan { partition, holder, candidates, paths, chosen };
    if plan.is_held_back() {
        // As the claim does: a bisection does not wait for those whose turn it is and who would be held back.
        plan.chosen = choose(&plan.candidates, &plan.paths, limits, false);
    }
    Ok(Some(plan))
}

/// The changes that the members ask for, in their order; one that was claimed or withdrawn and purged meanwhile is left out.
pub async fn contents(store: &Store, members: &[Candidate]) -> Result<Vec<(OperationId, Vec<FileChange>)>, StoreError> {
    let mut all = Vec::with_capacity(members.len());
    for chunk in members.chunks(CONTENT_CHUNK) {
        let ids = json!(chunk.iter().map(|one| &one.operation).collect::<Vec<_>>()).to_string();
        let mut read: BTreeMap<String, String> = store.rows::<(String, String)>(READ_CONTENTS, (ids,)).await?.into_iter().collect();
        for member in chunk {
            let Some(content) = read.remove(member.operation.as_str()) else { continue };
            let files = serde_json::from_str(&content)
                .map_err(|why| StoreError::corrupt(format!("content of request {}: {why}", member.operation)))?;
            all.push((member.operation.clone(), files));
        }
    }
    Ok(all)
}
