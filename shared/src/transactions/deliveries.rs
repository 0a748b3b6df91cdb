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
    /// Most effects on the forge, and rounds to start.
    pub effects: u32,
    /// Most events: a backlog of them keeps no effect from being leased.
    pub events: u32,
    pub token: LeaseToken,
}

const FIND_DUE_EFFECTS: &str = "/* deliveries.find_due_effects */ \
    SELECT dedup_key FROM outbox FORCE INDEX (idx_due) \
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND due_at <= CURRENT_TIMESTAMP(6) AND kind <> 'publish' \
      AND (leased_until IS NULL OR leased_until <= CURRENT_TIMESTAMP(6)) ORDER BY due_at, dedup_key LIMIT ?";

const FIND_DUE_EVENTS: &str = "/* deliveries.find_due_events */ \
    SELECT dedup_key FROM outbox FORCE INDEX (idx_due) \
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND due_at <= CURRENT_TIMESTAMP(6) AND kind = 'publish' \
      AND (leased_until IS NULL OR leased_until <= CURRENT_TIMESTAMP(6)) ORDER BY due_at, dedup_key LIMIT ?";

const FIND_DUE_EFFECTS_OF_BATCH: &str = "/* deliveries.find_due_effects_of_batch */ \
    SELECT dedup_key FROM outbox FORCE INDEX (idx_batch) \
    WHERE batch_id = ? AND delivered_at IS NULL AND given_up_at IS NULL AND due_at <= CURRENT_TIMESTAMP(6) AND kind <> 'publish' \
      AND (leased_until IS NULL OR leased_until <= CURRENT_TIMESTAMP(6)) ORDER BY due_at, dedup_key LIMIT ?";

const FIND_DUE_EVENTS_OF_BATCH: &str = "/* deliveries.find_due_events_of_batch */ \
    SELECT dedup_key FROM outbox FORCE INDEX (idx_batch) \
    WHERE batch_id = ? AND delivered_at IS NULL AND given_up_at IS NULL AND due_at <= CURRENT_TIMESTAMP(6) AND kind = 'publish' \
      AND (leased_until IS NULL OR leased_until <= CURRENT_TIMESTAMP(6)) ORDER BY due_at, dedup_key LIMIT ?";

/// Rows locked by one statement. A list of fixed length, for a join with one made of JSON takes no `SKIP LOCKED`.
const LOCKED_AT_ONCE: usize = 20;

const LOCK_FREE_DUE_ROWS: &str = "/* deliveries.lock_free_due_rows */ \
    SELECT dedup_key, kind, partition_key, batch_id, operation_id, payload, \
           DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ'), attempts + 1 \
    FROM outbox FORCE INDEX (PRIMARY) WHERE dedup_key IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
      AND delivered_at IS NULL AND given_up_at IS NULL AND due_at <= CURRENT_TIMESTAMP(6) \
      AND (leased_until IS NULL OR leased_until <= CURRENT_TIMESTAMP(6)) FOR UPDATE SKIP LOCKED";

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

const DELIVER_LEASED_ROWS: &str = "/* deliveries.deliver_leased_rows */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (dedup_key VARCHAR(191) CHARACTER SET ascii COLLATE ascii_bin PATH '$.k')) AS j \
    STRAIGHT_JOIN outbox o FORCE INDEX (PRIMARY) ON o.dedup_key = j.dedup_key \
    SET o.delivered_at = CURRENT_TIMESTAMP(6), o.lease_token = NULL, o.leased_until = NULL, o.last_error = NULL, o.version = o.version + 1 \
    WHERE o.delivered_at IS NULL AND o.given_up_at IS NULL AND o.lease_token = ?";

const POSTPONE_LEASED_ROWS: &str = "/* deliveries.postpone_leased_rows */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (dedup_key VARCHAR(191) CHARACTER SET ascii COLLATE ascii_bin PATH '$.k', \
        delay_s INT UNSIGNED PATH '$.d', error VARCHAR(1024) PATH '$.e')) AS j \
    STRAIGHT_JOIN outbox o FORCE INDEX (PRIMARY) ON o.dedup_key = j.dedup_key \
    SET o.due_at = CURRENT_TIMESTAMP(6) + INTERVAL j.delay_s SECOND, o.last_error = j.error, o.lease_token = NULL, o.leased_until = NULL, \
        o.version = o.version + 1 \
    WHERE o.delivered_at IS NULL AND o.given_up_at IS NULL AND o.lease_token = ?";

const RETURN_LEASED_ROWS: &str = "/* deliveries.return_leased_rows */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (dedup_key VARCHAR(191) CHARACTER SET ascii COLLATE ascii_bin PATH '$.k')) AS j \
    STRAIGHT_JOIN outbox o FORCE INDEX (PRIMARY) ON o.dedup_key = j.dedup_key \
    SET o.attempts = o.attempts - 1, o.lease_token = NULL, o.leased_until = NULL, o.version = o.version + 1 \
    WHERE o.delivered_at IS NULL AND o.given_up_at IS NULL AND o.lease_token = ?";

const GIVE_UP_LEASED_ROWS: &str = "/* deliveries.give_up_leased_rows */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (dedup_key VARCHAR(191) CHARACTER SET ascii COLLATE ascii_bin PATH '$.k', \
        error VARCHAR(1024) PATH '$.e')) AS j \
    STRAIGHT_JOIN outbox o FORCE INDEX (PRIMARY) ON o.dedup_key = j.dedup_key \
    SET o.given_up_at = CURRENT_TIMESTAMP(6), o.last_error = j.error, o.lease_token = NULL, o.leased_until = NULL, o.version = o.version + 1 \
    WHERE o.delivered_at IS NULL AND o.given_up_at IS NULL AND o.lease_token = ?";

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
            Scope::All => tx.rows(FIND_DUE_EFFECTS, (self.effects,)).await?,
            Scope::Batch(batch) => tx.rows(FIND_DUE_EFFECTS_OF_BATCH, (batch, self.effects)).await?,
        };
        due.extend(match self.scope {
            Scope::All => tx.rows::<(String,)>(FIND_DUE_EVENTS, (self.events,)).await?,
            Scope::Batch(batch) => tx.rows(FIND_DUE_EVENTS_OF_BATCH, (batch, self.events)).await?,
        });
        if due.is_empty() {
            return refuse(Vec::new());
        }
        due.sort_unstable();
        let mut leased = Vec::new();
        for chunk in due.chunks(LOCKED_AT_ONCE) {
            let keys: Vec<Value> = (0..LOCKED_AT_ONCE).map(|at| chunk[at.min(chunk.len() - 1)].0.as_str().into()).collect();
            for columns in tx.rows::<Columns>(LOCK_FREE_DUE_ROWS, keys).await? {
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
    /// Nobody came to perform it: due as it was, and the attempt does not count.
    Returned,
    /// Alarmed by the caller; never silent.
    GivenUp {
        error: String,
    },
}

/// Records what became of rows that one pass leased; in as many statements as there are fates, not rows.
#[derive(Debug, Clone)]
pub struct RecordDeliveries {
    pub token: LeaseToken,
    /// By dedup key.
    pub fates: Vec<(String, Fate)>,
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordDeliveriesOutcome {
    Recorded {
        /// Rows that somebody else holds by now, or has ended.
        lost: usize,
    },
    /// None of them is ours any more.
    LeaseLost,
}

impl Guarded for RecordDeliveries {
    const NAME: &'static str = "record_deliveries";
    type Outcome = RecordDeliveriesOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<RecordDeliveriesOutcome>, StoreError> {
        let mut changed = 0;
        for (sql, is_meant) in RECORDS {
            let mut rows: Vec<&(String, Fate)> = self.fates.iter().filter(|(_, fate)| is_meant(fate)).collect();
            if rows.is_empty() {
                continue;
            }
            rows.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            let rows: Vec<_> = rows.into_iter().map(|(key, fate)| fate.row(key)).collect();
            changed += tx.write(sql, (json!(rows).to_string(), self.token)).await? as usize;
        }
        match self.fates.len().checked_sub(changed) {
            Some(_) if changed == 0 => refuse(RecordDeliveriesOutcome::LeaseLost),
            Some(lost) => commit(RecordDeliveriesOutcome::Recorded { lost }),
            None => Err(StoreError::corrupt("more outbox rows were recorded than were performed")),
        }
    }

    fn outcome_name(outcome: &RecordDeliveriesOutcome) -> &'static str {
        match outcome {
            RecordDeliveriesOutcome::Recorded { .. } => "recorded",
            RecordDeliveriesOutcome::LeaseLost => "lease_lost",
        }
    }
}

type Record = (&'static str, fn(&Fate) -> bool);

const RECORDS: [Record; 4] = [
    (DELIVER_LEASED_ROWS, |fate| matches!(fate, Fate::Delivered)),
    (POSTPONE_LEASED_ROWS, |fate| matches!(fate, Fate::Postponed { .. })),
    (RETURN_LEASED_ROWS, |fate| matches!(fate, Fate::Returned)),
    (GIVE_UP_LEASED_ROWS, |fate| matches!(fate, Fate::GivenUp { .. })),
];

impl Fate {
    fn row(&self, key: &str) -> serde_json::Value {
        match self {
            Self::Delivered | Self::Returned => json!({ "k": key }),
            Self::Postponed { delay_s, error } => json!({ "k": key, "d": delay_s, "e": clip(error) }),
            Self::GivenUp { error } => json!({ "k": key, "e": clip(error) }),
        }
    }
}

/// Width of the message columns, in characters.
pub const MESSAGE_MAX: usize = 1024;

/// A text cut to what a message column holds.
pub fn clip(text: &str) -> String {
    text.chars().take(MESSAGE_MAX).collect()
}
