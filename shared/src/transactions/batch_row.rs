//! The batch as a settling transaction meets it: gate first, then the row.

use crate::error::StoreError;
use crate::ids::{BatchId, ClaimToken, PartitionKey};
use crate::outbox::CausingBatch;
use crate::state::{BatchStatus, FailCause};
use crate::tx::Tx;

/// What a settling transaction needs of a batch.
#[derive(Debug, Clone)]
pub struct BatchRow {
    pub id: BatchId,
    pub partition: PartitionKey,
    pub token: ClaimToken,
    pub status: BatchStatus,
    pub fail_cause: Option<FailCause>,
    pub fail_code: Option<String>,
    pub message: Option<String>,
    pub mr_iid: Option<u64>,
    pub mr_url: Option<String>,
    pub settled_by: Option<String>,
    pub version: u64,
}

impl BatchRow {
    /// The batch as it stands after a guarded write of this transaction raised its version once.
    pub fn after_write(&self) -> CausingBatch {
        CausingBatch { id: self.id, partition: self.partition.clone(), token: self.token, version: self.version + 1 }
    }
}

const READ_PARTITION_OF_BATCH: &str = "/* batch.read_partition */ SELECT partition_key FROM merge_batch WHERE id = ?";

const LOCK_GATE: &str =
    "/* batch.lock_gate */ SELECT partition_key FROM merge_partition FORCE INDEX (PRIMARY) WHERE partition_key = ? FOR UPDATE";

const READ_BATCH: &str = "/* batch.read */ \
    SELECT partition_key, claim_token, status, fail_cause, fail_code, message, mr_iid, mr_url, settled_by, version \
    FROM merge_batch WHERE id = ?";

type Columns = (String, Vec<u8>, i64, Option<i64>, Option<String>, Option<String>, Option<u64>, Option<String>, Option<String>, u64);

/// Takes the gate of the batch's partition (waiting for it), then reads the batch. `None`: no such batch.
///
/// The guard of the caller's write still decides: what is read here only names versions and members.
pub async fn lock_gate_of(tx: &mut Tx<'_>, batch: BatchId) -> Result<Option<BatchRow>, StoreError> {
    let Some((partition,)) = tx.first::<(String,)>(READ_PARTITION_OF_BATCH, (batch,)).await? else {
        return Ok(None);
    };
    if tx.first::<(String,)>(LOCK_GATE, (&partition,)).await?.is_none() {
        return Err(StoreError::corrupt(format!("batch {batch} belongs to the partition {partition}, which does not exist")));
    }
    read(tx, batch).await
}

async fn read(tx: &mut Tx<'_>, batch: BatchId) -> Result<Option<BatchRow>, StoreError> {
    let Some(columns) = tx.first::<Columns>(READ_BATCH, (batch,)).await? else { return Ok(None) };
    let (partition, token, status, fail_cause, fail_code, message, mr_iid, mr_url, settled_by, version) = columns;
    Ok(Some(BatchRow {
        id: batch,
        partition: PartitionKey::parse(partition).map_err(|why| StoreError::corrupt(why.to_string()))?,
        token: token_from(&token)?,
        status: BatchStatus::from_code(status)?,
        fail_cause: fail_cause.map(FailCause::from_code).transpose()?,
        fail_code,
        message,
        mr_iid,
        mr_url,
        settled_by,
        version,
    }))
}

pub fn token_from(bytes: &[u8]) -> Result<ClaimToken, StoreError> {
    bytes.try_into().map(ClaimToken).map_err(|_| StoreError::corrupt("a claim token that is not 16 bytes long"))
}

/// How a transaction that ends or holds a batch came out.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettleOutcome {
    /// This call flipped the state.
    Settled,
    /// Somebody else changed the state first: what it is now.
    Preempted {
        status: BatchStatus,
    },
    UnknownBatch,
}

impl SettleOutcome {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Preempted { .. } => "preempted",
            Self::UnknownBatch => "unknown_batch",
        }
    }

    /// The answer where the guard did not hold: a unit that was resumed after an unanswered COMMIT
    /// finds its own signature, and won after all.
    pub fn guard_lost(row: &BatchRow, resumed: bool, by: &str) -> Self {
        if resumed && row.settled_by.as_deref() == Some(by) { Self::Settled } else { Self::Preempted { status: row.status } }
    }
}
