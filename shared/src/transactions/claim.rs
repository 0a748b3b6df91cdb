//! Takes a partition's one slot and fills it with its oldest waiting requests.
//!
//! Guard: the slot is free, and every row read is still waiting.
//! Refusals: `Contended`, `UnknownPartition`, `Paused`, `SlotOccupied`, `NothingToClaim`, `HeldBack`, `Preempted`.
//! Locks, in house order: gate, batch, waiting rows, operations, histories, outbox.

use std::collections::BTreeMap;

use serde_json::json;

use crate::decide::claim_set::{Candidate, Chosen, ClaimLimits, Suspect, choose};
use crate::error::StoreError;
use crate::ids::{BatchId, ClaimToken, OperationId, PartitionKey, Principal};
use crate::outbox::{CausingBatch, Effect, kind};
use crate::read::waiting::{READ_LAST_WAS_SUSPECTS, READ_OLDEST_WAITING, READ_PATHS_OF_WAITING, WINDOW_FACTOR, WINDOW_MAX, WaitingColumns};
use crate::state::{BatchStatus, Trigger};
use crate::transactions::members::CHUNK;
use crate::tx::{Decision, Guarded, Inserted, Tx, commit, refuse, rerun};

#[derive(Debug, Clone)]
pub struct Claim {
    pub partition: PartitionKey,
    /// Chosen before BEGIN; the same for every rerun of this round.
    pub token: ClaimToken,
    /// Can only lower the partition's own limit.
    pub max_requests: Option<u32>,
    pub trigger: Trigger,
    pub requested_by: Principal,
}

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    Claimed {
        batch: BatchId,
        members: Vec<OperationId>,
    },
    /// This token has its batch: the COMMIT whose answer was lost had arrived.
    AlreadyClaimed {
        batch: BatchId,
        members: Vec<OperationId>,
    },
    SlotOccupied {
        batch: BatchId,
    },
    NothingToClaim,
    /// Fewer than min_requests wait, and none of them longer than max_wait_s.
    HeldBack,
    Paused {
        reason: String,
    },
    /// Another claim or settlement holds the gate right now.
    Contended,
    UnknownPartition,
    Preempted,
}

const LOCK_FREE_GATE: &str = "/* claim.lock_free_gate */ \
    SELECT max_requests, max_bytes, min_requests, max_wait_s, \
           IF(pause_until IS NULL OR pause_until > CURRENT_TIMESTAMP(6), pause_reason, NULL) \
    FROM merge_partition FORCE INDEX (PRIMARY) WHERE partition_key = ? FOR UPDATE SKIP LOCKED";

/// After an unanswered COMMIT the claim waits for the gate: its own earlier transaction may still hold it.
const LOCK_GATE: &str = "/* claim.lock_gate */ \
    SELECT max_requests, max_bytes, min_requests, max_wait_s, \
           IF(pause_until IS NULL OR pause_until > CURRENT_TIMESTAMP(6), pause_reason, NULL) \
    FROM merge_partition FORCE INDEX (PRIMARY) WHERE partition_key = ? FOR UPDATE";

const READ_PARTITION: &str = "/* claim.read_partition */ SELECT 1 FROM merge_partition WHERE partition_key = ?";

const TAKE_FREE_SLOT: &str = "/* claim.take_free_slot */ \
    INSERT INTO merge_batch (partition_key, claim_token, status, trigger_kind, requested_by) VALUES (?, ?, 1, ?, ?)";

const READ_MY_BATCH: &str = "/* claim.read_my_batch */ SELECT id FROM merge_batch WHERE claim_token = ?";

const READ_MY_MEMBERS: &str =
    "/* claim.read_my_members */ SELECT operation_id FROM merge_batch_member WHERE batch_id = ? ORDER BY position";

const READ_SLOT_HOLDER: &str = "/* claim.read_slot_holder */ SELECT id FROM merge_batch WHERE partition_key = ? AND active_slot = 1";

const MARK_SUSPECTS: &str = "/* claim.mark_suspects_of_new_batch */ \
    UPDATE merge_batch SET suspect_of = ?, version = version + 1 WHERE id = ? AND status = 1 AND version = 1";

const CLAIM_WAITING_ROWS: &str = "/* claim.claim_waiting_rows */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j \
    STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id \
    SET r.batch_id = ?, r.version = r.version + 1 WHERE r.batch_id IS NULL";

const MOVE_WAITING_OPERATIONS: &str = "/* claim.move_waiting_operations */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
    STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.operation_id = j.operation_id \
    SET o.status = 2, o.batch_id = ?, o.updated_at = CURRENT_TIMESTAMP(6), o.version = o.version + 1 WHERE o.status = 1";

const RECORD_MEMBERS: &str = "/* claim.record_members */ \
    INSERT INTO merge_batch_member (batch_id, operation_id, position) \
    SELECT ?, j.operation_id, j.position FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) PATH '$.o', position INT UNSIGNED PATH '$.p')) AS j";

impl Guarded for Claim {
    const NAME: &'static str = "claim";
    type Outcome = ClaimOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<ClaimOutcome>, StoreError> {
        let gate = if tx.is_resumed() { LOCK_GATE } else { LOCK_FREE_GATE };
        let Some((max_requests, max_bytes, min_requests, max_wait_s, pause)) =
            tx.first::<(u64, u64, u64, i64, Option<String>)>(gate, (&self.partition,)).await?
        else {
            let exists = tx.first::<(i64,)>(READ_PARTITION, (&self.partition,)).await?.is_some();
            return refuse(if exists { ClaimOutcome::Contended } else { ClaimOutcome::UnknownPartition });
        };
        if tx.is_resumed()
            && let Some(mine) = self.already_claimed(tx).await?
        {
            return refuse(mine);
        }
        if let Some(reason) = pause {
            return refuse(ClaimOutcome::Paused { reason });
        }
        let batch = match tx.insert_new(TAKE_FREE_SLOT, (&self.partition, self.token, self.trigger, &self.requested_by)).await? {
            Inserted::New(id) => BatchId(id),
            // By token first: a lost COMMIT may have been ours.
            Inserted::Duplicate(_) => return refuse(self.mine_or_occupied(tx).await?),
        };
        let limits = ClaimLimits { max_requests: max_requests.min(self.max_requests.map_or(u64::MAX, u64::from)) as usize, max_bytes };
        let early = Early { min_requests, max_wait_s, binds: self.trigger != Trigger::Manual };
        let Chosen { members, suspect_of } = self.choose_waiting(tx, batch, limits, early).await?;
        if members.is_empty() {
            return refuse(ClaimOutcome::NothingToClaim); // Gives the slot back too.
        }
        if suspect_of.is_none() && early.is(&members) {
            return refuse(ClaimOutcome::HeldBack);
        }
        let mut causing = CausingBatch { id: batch, partition: self.partition.clone(), token: self.token, version: 1 };
        if let Some(suspect_of) = suspect_of {
            tx.write_exactly(1, MARK_SUSPECTS, (suspect_of, batch)).await?;
            causing.version += 1;
        }
        if !self.claim_members(tx, batch, &members).await? {
            return rerun(ClaimOutcome::Preempted);
        }
        tx.emit(&[
            Effect::on_batch(kind::OPEN_MERGE_REQUEST, &causing),
            Effect::publish_batch("batch.claimed", &causing, BatchStatus::Running),
        ])
        .await?;
        commit(ClaimOutcome::Claimed { batch, members: members.into_iter().map(|one| one.operation).collect() })
    }

    fn outcome_name(outcome: &ClaimOutcome) -> &'static str {
        outcome.name()
    }
}

/// When a round of fresh requests would rather wait for more of them.
#[derive(Debug, Clone, Copy)]
struct Early {
    min_requests: u64,
    max_wait_s: i64,
    /// Not for a person who starts a round by hand.
    binds: bool,
}

impl Early {
    fn is(self, members: &[Candidate]) -> bool {
        self.binds && (members.len() as u64) < self.min_requests && members.iter().all(|one| one.waited_s < self.max_wait_s)
    }
}

impl ClaimOutcome {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Claimed { .. } => "claimed",
            Self::AlreadyClaimed { .. } => "already_claimed",
            Self::SlotOccupied { .. } => "slot_occupied",
            Self::NothingToClaim => "nothing_to_claim",
            Self::HeldBack => "held_back",
            Self::Paused { .. } => "paused",
            Self::Contended => "contended",
            Self::UnknownPartition => "unknown_partition",
            Self::Preempted => "preempted",
        }
    }
}

impl Claim {
    async fn already_claimed(&self, tx: &mut Tx<'_>) -> Result<Option<ClaimOutcome>, StoreError> {
        let Some((id,)) = tx.first::<(u64,)>(READ_MY_BATCH, (self.token,)).await? else { return Ok(None) };
        let members = tx.rows::<(String,)>(READ_MY_MEMBERS, (id,)).await?;
        let members = members.into_iter().map(|(id,)| OperationId::parse(id)).collect::<Result<_, _>>();
        Ok(Some(ClaimOutcome::AlreadyClaimed { batch: BatchId(id), members: members.map_err(|why| StoreError::corrupt(why.to_string()))? }))
    }

    async fn mine_or_occupied(&self, tx: &mut Tx<'_>) -> Result<ClaimOutcome, StoreError> {
        if let Some(mine) = self.already_claimed(tx).await? {
            return Ok(mine);
        }
        // The holder may have settled between our INSERT and this read: then the slot is free again.
        let holder = tx.first::<(u64,)>(READ_SLOT_HOLDER, (&self.partition,)).await?;
        Ok(holder.map_or(ClaimOutcome::Contended, |(id,)| ClaimOutcome::SlotOccupied { batch: BatchId(id) }))
    }

    async fn choose_waiting(&self, tx: &mut Tx<'_>, batch: BatchId, limits: ClaimLimits, early: Early) -> Result<Chosen, StoreError> {
        let window = (limits.max_requests * WINDOW_FACTOR).min(WINDOW_MAX);
        let rows = tx.rows::<WaitingColumns>(READ_OLDEST_WAITING, (&self.partition, window as u64)).await?;
        let candidates = candidates_from(rows)?;
        let mut paths: BTreeMap<OperationId, Vec<String>> = BTreeMap::new();
        for chunk in candidates.chunks(CHUNK) {
            let ids = json!(chunk.iter().map(|one| &one.operation).collect::<Vec<_>>()).to_string();
            add_paths(&mut paths, tx.rows(READ_PATHS_OF_WAITING, (ids,)).await?)?;
        }
        let last_was_suspects = tx.first::<(i64,)>(READ_LAST_WAS_SUSPECTS, (&self.partition, batch)).await? == Some((1,));
        let chosen = choose(&candidates, &paths, limits, last_was_suspects);
        if chosen.suspect_of.is_none() && early.is(&chosen.members) {
            // Those whose turn it is would be held back; a bisection does not wait for them.
            return Ok(choose(&candidates, &paths, limits, false));
        }
        Ok(chosen)
    }

    /// `false`: a row was claimed or withdrawn since it was read.
    async fn claim_members(&self, tx: &mut Tx<'_>, batch: BatchId, members: &[Candidate]) -> Result<bool, StoreError> {
        let mut rows: Vec<u64> = members.iter().map(|one| one.row).collect();
        rows.sort_unstable();
        for chunk in rows.chunks(CHUNK) {
            if tx.write(CLAIM_WAITING_ROWS, (json!(chunk).to_string(), batch)).await? != chunk.len() as u64 {
                return Ok(false);
            }
        }
        let mut operations: Vec<&OperationId> = members.iter().map(|one| &one.operation).collect();
        operations.sort_unstable();
        for chunk in operations.chunks(CHUNK) {
            if tx.write(MOVE_WAITING_OPERATIONS, (json!(chunk).to_string(), batch)).await? != chunk.len() as u64 {
                return Ok(false);
            }
        }
        let history: Vec<_> = members.iter().enumerate().map(|(at, one)| json!({ "o": one.operation, "p": at })).collect();
        for chunk in history.chunks(CHUNK) {
            tx.write_exactly(chunk.len(), RECORD_MEMBERS, (batch, json!(chunk).to_string())).await?;
        }
        Ok(true)
    }
}

pub fn candidates_from(rows: Vec<WaitingColumns>) -> Result<Vec<Candidate>, StoreError> {
    rows.into_iter()
        .map(|(row, operation, bytes, waited_s, suspect_of, peer_limit)| {
            let operation = OperationId::parse(operation).map_err(|why| StoreError::corrupt(why.to_string()))?;
            let suspect = suspect_of.zip(peer_limit).map(|(of, peer_limit)| Suspect { of, peer_limit });
            Ok(Candidate { row, operation, bytes, waited_s, suspect })
        })
        .collect()
}

pub fn add_paths(paths: &mut BTreeMap<OperationId, Vec<String>>, rows: Vec<(String, Vec<u8>)>) -> Result<(), StoreError> {
    for (operation, path) in rows {
        let operation = OperationId::parse(operation).map_err(|why| StoreError::corrupt(why.to_string()))?;
        let path = String::from_utf8(path).map_err(|_| StoreError::corrupt("a stored path is not UTF-8"))?;
        paths.entry(operation).or_default().push(path);
    }
    Ok(())
}
