//! The relay's side of the outbox: lease, then delivered, postponed or given up.
//!
//! Guard of every write: the row is undelivered, and the lease is free or still ours.
//! Locks: outbox rows through PRIMARY; a row that another relay holds is skipped.

use mysql_async::Value;
use serde_json::json;

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId, PartitionKey};
use crate::tx::{Decision, Guarded, Tx, commit, refuse};

/// Longer than the longest function time-out (60 s): a lease outlives its holder, never the other way round.
const LEASE_S: u32 = 90;

/// Who leased a row; unique to one pass of one relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseToken([u8; 16]);

impl LeaseToken {
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl From<LeaseToken> for Value {
    fn from(token: LeaseToken) -> Self {
        Value::Bytes(token.0.to_vec())
    }
}

/// Which rows a pass of the relay looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The rows of one batch: what a function caused itself.
    Batch(BatchId),
    /// All that are overdue.
    All,
}

/// An effect to be performed.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    pub key: String,
    pub kind: String,
    pub partition: PartitionKey,
    pub batch: Option<BatchId>,
    pub operation: Option<OperationId>,
    pub payload: serde_json::Value,
    /// RFC 3339: when the effect was caused.
    pub created_at: String,
    /// This attempt included.
    pub attempts: u32,
}

#[derive(Debug, Clone)]
pub struct LeaseDeliveries {
    pub scope: Scope,
    pub limit: u32,
    pub token: LeaseToken,
}

const FIND_DUE_OF_ALL: &str = "/* deliveries.find_due */ \
    SELECT dedup_key FROM outbox FORCE INDEX (idx_due) \
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND due_at <= CURRENT_TIMESTAMP(6) \
      AND (leased_until IS NULL OR leased_until <= CURRENT_TIMESTAMP(6)) ORDER BY due_at, dedup_key LIMIT ?";

const FIND_DUE_OF_BATCH: &str = "/* deliveries.find_due_of_batch */ \
    SELECT dedup_key FROM outbox FORCE INDEX (idx_batch) \
    WHERE batch_id = ? AND delivered_at IS NULL AND given_up_at IS NULL AND due_at <= CURRENT_TIMESTAMP(6) \
      AND (leased_until IS NULL OR leased_until <= CURRENT_TIMESTAMP(6)) ORDER BY due_at, dedup_key LIMIT ?";

const LOCK_FREE_DUE_ROWS: &str = "/* deliveries.lock_free_due_rows */ \
    SELECT o.dedup_key, o.kind, o.partition_key, o.batch_id, o.operation_id, o.payload, \
           DATE_FORMAT(o.created_at, '%Y-%m-%dT%H:%i:%s.%fZ'), o.attempts + 1 \
    FROM outbox o FORCE INDEX (PRIMARY) WHERE o.dedup_key = ? \
      AND o.delivered_at IS NULL AND o.given_up_at IS NULL AND o.due_at <= CURRENT_TIMESTAMP(6) \
      AND (o.leased_until IS NULL OR o.leased_until <= CURRENT_TIMESTAMP(6)) FOR UPDATE SKIP LOCKED";

/// After an unanswered COMMIT: the rows that this pass holds already, with the attempt counted.
const READ_LEASED_ROWS: &str = "/* deliveries.read_leased_rows */ \
    SELECT dedup_key, kind, partition_key, batch_id, operation_id, payload, DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ'), attempts \
    FROM outbox FORCE INDEX (idx_due) WHERE delivered_at IS NULL AND given_up_at IS NULL AND lease_token = ? ORDER BY dedup_key";

const LEASE_LOCKED_ROWS: &str = "/* deliveries.lease_locked_rows */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (dedup_key VARCHAR(191) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
    STRAIGHT_JOIN outbox o FORCE INDEX (PRIMARY) ON o.dedup_key = j.dedup_key \
    SET o.lease_token = ?, o.leased_until = CURRENT_TIMESTAMP(6) + INTERVAL ? SECOND, o.attempts = o.attempts + 1, o.version = o.version + 1 \
    WHERE o.delivered_at IS NULL AND o.given_up_at IS NULL";

pub(crate) const DELIVER_LEASED_ROW: &str = "/* deliveries.deliver_leased_row */ \
    UPDATE outbox SET delivered_at = CURRENT_TIMESTAMP(6), lease_token = NULL, leased_until = NULL, last_error = NULL, version = version + 1 \
    WHERE dedup_key = ? AND delivered_at IS NULL AND given_up_at IS NULL AND lease_token = ?";

const POSTPONE_LEASED_ROW: &str = "/* deliveries.postpone_leased_row */ \
    UPDATE outbox SET due_at = CURRENT_TIMESTAMP(6) + INTERVAL ? SECOND, last_error = ?, lease_token = NULL, leased_until = NULL, version = version + 1 \
    WHERE dedup_key = ? AND delivered_at IS NULL AND given_up_at IS NULL AND lease_token = ?";

const GIVE_UP_LEASED_ROW: &str = "/* deliveries.give_up_leased_row */ \
    UPDATE outbox SET given_up_at = CURRENT_TIMESTAMP(6), last_error = ?, lease_token = NULL, leased_until = NULL, version = version + 1 \
    WHERE dedup_key = ? AND delivered_at IS NULL AND given_up_at IS NULL AND lease_token = ?";

type Columns = (String, String, String, Option<u64>, Option<String>, String, String, u32);

impl Guarded for LeaseDeliveries {
    const NAME: &'static str = "lease_deliveries";
    type Outcome = Vec<Delivery>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<Vec<Delivery>>, StoreError> {
        if tx.is_resumed() {
            let mine = tx.rows::<Columns>(READ_LEASED_ROWS, (self.token,)).await?;
            if !mine.is_empty() {
                return refuse(mine.into_iter().map(delivery_from).collect::<Result<_, _>>()?);
            }
        }
        let mut due: Vec<(String,)> = match self.scope {
            Scope::All => tx.rows(FIND_DUE_OF_ALL, (self.limit,)).await?,
            Scope::Batch(batch) => tx.rows(FIND_DUE_OF_BATCH, (batch, self.limit)).await?,
        };
        due.sort_unstable();
        let mut leased = Vec::new();
        for (key,) in due {
            if let Some(columns) = tx.first::<Columns>(LOCK_FREE_DUE_ROWS, (key,)).await? {
                leased.push(delivery_from(columns)?);
            }
        }
        if leased.is_empty() {
            return refuse(leased);
        }
        let keys = json!(leased.iter().map(|one| &one.key).collect::<Vec<_>>()).to_string();
        tx.write_exactly(leased.len(), LEASE_LOCKED_ROWS, (keys, self.token, LEASE_S)).await?;
        commit(leased)
    }

    fn outcome_name(outcome: &Vec<Delivery>) -> &'static str {
        if outcome.is_empty() { "nothing_due" } else { "leased" }
    }
}

fn delivery_from(columns: Columns) -> Result<Delivery, StoreError> {
    let (key, kind, partition, batch, operation, payload, created_at, attempts) = columns;
    Ok(Delivery {
        payload: serde_json::from_str(&payload).map_err(|why| StoreError::corrupt(format!("payload of the outbox row {key}: {why}")))?,
        partition: PartitionKey::parse(partition).map_err(|why| StoreError::corrupt(why.to_string()))?,
        batch: batch.map(BatchId),
        operation: operation.map(OperationId::parse).transpose().map_err(|why| StoreError::corrupt(why.to_string()))?,
        key,
        kind,
        created_at,
        attempts,
    })
}

/// What became of a leased effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Delivered,
    Postponed {
        delay_s: u32,
        error: String,
    },
    /// Alarmed by the caller; never silent.
    GivenUp {
        error: String,
    },
}

#[derive(Debug, Clone)]
pub struct RecordDelivery {
    pub key: String,
    pub token: LeaseToken,
    pub fate: Fate,
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordDeliveryOutcome {
    Recorded,
    /// Somebody else holds or has ended the row.
    LeaseLost,
}

impl Guarded for RecordDelivery {
    const NAME: &'static str = "record_delivery";
    type Outcome = RecordDeliveryOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<RecordDeliveryOutcome>, StoreError> {
        let changed = match &self.fate {
            Fate::Delivered => tx.write(DELIVER_LEASED_ROW, (&self.key, self.token)).await?,
            Fate::Postponed { delay_s, error } => tx.write(POSTPONE_LEASED_ROW, (delay_s, clip(error), &self.key, self.token)).await?,
            Fate::GivenUp { error } => tx.write(GIVE_UP_LEASED_ROW, (clip(error), &self.key, self.token)).await?,
        };
        if changed == 1 { commit(RecordDeliveryOutcome::Recorded) } else { refuse(RecordDeliveryOutcome::LeaseLost) }
    }

    fn outcome_name(outcome: &RecordDeliveryOutcome) -> &'static str {
        match outcome {
            RecordDeliveryOutcome::Recorded => "recorded",
            RecordDeliveryOutcome::LeaseLost => "lease_lost",
        }
    }
}

/// Width of the message columns, in characters.
pub const MESSAGE_MAX: usize = 1024;

/// A text cut to what a message column holds.
pub fn clip(text: &str) -> String {
    text.chars().take(MESSAGE_MAX).collect()
}
