//! Makes a target, or changes its capacity, its partition or whether it takes grants.
//!
//! Guard: the row is in the version read under its exclusive lock, or absent.
//! Refusals: `UnknownPartition`, `PartitionClosed`, `StillLive`. Locks: target, audit.

use std::fmt;

use serde_json::Value;

use crate::error::StoreError;
use crate::ids::{PartitionKey, TargetKey};
use crate::read::targets::{Columns, Target, select_target, target_from};
use crate::transactions::command::{Change, Command, CommandOutcome, Concerns};
use crate::tx::{Decision, Guarded, Inserted, Tx, refuse, rerun};

#[derive(Debug, Clone)]
pub struct SetTarget {
    pub target: TargetKey,
    /// `None`: stays; of a new target the default partition.
    pub partition: Option<PartitionKey>,
    /// `None`: stays. `Some(None)`: seats are not counted any more.
    pub capacity: Option<Option<u64>>,
    /// A closed target takes no new grant; what it holds can be revoked.
    pub closed: Option<bool>,
    pub command: Command,
}

pub type SetTargetOutcome = CommandOutcome<TargetRefusal>;

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetRefusal {
    UnknownPartition {
        partition: PartitionKey,
    },
    PartitionClosed {
        partition: PartitionKey,
    },
    /// Its files lie in the present partition for as long as one of its relationships lives.
    StillLive {
        partition: PartitionKey,
        live: u64,
    },
}

impl fmt::Display for TargetRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition { partition } => write!(f, "there is no partition {partition}; make it with set_partition first"),
            Self::PartitionClosed { partition } => {
                write!(f, "the partition {partition} is closed; open it with set_partition and \"closed\": false, or name another")
            }
            Self::StillLive { partition, live } => write!(
                f,
                "{live} relationships of this target live in the partition {partition}, where their files are; \
                 revoke them and let the revokes merge before it moves"
            ),
        }
    }
}

const LOCK_TARGET: &str = select_target!("set_target.lock", "FORCE INDEX (PRIMARY) WHERE target_key = ? FOR UPDATE");

const READ_WRITTEN_TARGET: &str = select_target!("set_target.read_written", "WHERE target_key = ?");

const READ_PARTITION: &str = "/* set_target.read_partition */ SELECT closed_at IS NOT NULL FROM merge_partition WHERE partition_key = ?";

/// Every unit that changes a seat holds the target's row until it ends, so under its lock the count is exact.
const COUNT_SEATS: &str = "/* set_target.count_seats */ \
    SELECT COUNT(*) FROM binding FORCE INDEX (idx_target_status) WHERE target_key = ? AND status IN (1, 2, 3, 5)";

const INSERT_ABSENT_TARGET: &str = "/* set_target.insert_absent_target */ \
    INSERT INTO target (partition_key, capacity, used, closed_at, target_key) VALUES (?, ?, ?, IF(?, CURRENT_TIMESTAMP(6), NULL), ?)";

const UPDATE_READ_TARGET: &str = "/* set_target.update_read_target */ \
    UPDATE target SET partition_key = ?, capacity = ?, used = ?, \
        closed_at = IF(?, COALESCE(closed_at, CURRENT_TIMESTAMP(6)), NULL), updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE target_key = ? AND version = ?";

impl Guarded for SetTarget {
    const NAME: &'static str = "set_target";
    type Outcome = SetTargetOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<SetTargetOutcome>, StoreError> {
        let current = tx.first::<Columns>(LOCK_TARGET, (&self.target,)).await?.map(target_from).transpose()?;
        if let Some(done) = self.command.done_before(tx).await? {
            return refuse(done);
        }
        let old = current.as_ref();
        let partition =
            self.partition.clone().or_else(|| old.map(|now| now.partition.clone())).unwrap_or_else(PartitionKey::default_partition);
        let seats = tx.first::<(u64,)>(COUNT_SEATS, (&self.target,)).await?.map_or(0, |(seats,)| seats);
        if let Some(refusal) = self.in_the_way(tx, old, &partition, seats).await? {
            return refuse(CommandOutcome::Refused(refusal));
        }
        let capacity = self.capacity.unwrap_or_else(|| old.and_then(|now| now.capacity));
        let used = if capacity.is_some() { seats } else { 0 };
        let closed = self.closed.unwrap_or_else(|| old.is_some_and(|now| now.closed_at.is_some()));
        match old {
            Some(now) if (&now.partition, now.capacity, now.used, now.closed_at.is_some()) == (&partition, capacity, used, closed) => {
                return refuse(CommandOutcome::Already { state: now.to_json() });
            }
            Some(now) => {
                let columns = (&partition, capacity, used, closed, &self.target, now.version);
                tx.write_exactly(1, UPDATE_READ_TARGET, columns).await?; // Held exclusively since it was read.
            }
            None => match tx.insert_new(INSERT_ABSENT_TARGET, (&partition, capacity, used, closed, &self.target)).await? {
                Inserted::New(_) => {}
                Inserted::Duplicate(_) => return rerun(CommandOutcome::Preempted),
            },
        }
        let Some(written) = tx.first::<Columns>(READ_WRITTEN_TARGET, (&self.target,)).await?.map(target_from).transpose()? else {
            return Err(StoreError::corrupt(format!("the target {} just written could not be read", self.target)));
        };
        let change = Change { before: old.map_or(Value::Null, Target::to_json), after: written.to_json() };
        let concerns = Concerns { partition: Some(partition), ..Concerns::default() };
        self.command.conclude(tx, &concerns, change).await
    }

    fn outcome_name(outcome: &SetTargetOutcome) -> &'static str {
        outcome.name()
    }
}

impl SetTarget {
    async fn in_the_way(
        &self,
        tx: &mut Tx<'_>,
        old: Option<&Target>,
        partition: &PartitionKey,
        live: u64,
    ) -> Result<Option<TargetRefusal>, StoreError> {
        if old.is_some_and(|now| now.partition == *partition) {
            return Ok(None);
        }
        match tx.first::<(i64,)>(READ_PARTITION, (partition,)).await? {
            None => return Ok(Some(TargetRefusal::UnknownPartition { partition: partition.clone() })),
            Some((0,)) => {}
            Some(_) => return Ok(Some(TargetRefusal::PartitionClosed { partition: partition.clone() })),
        }
        let moved_from = old.map(|now| now.partition.clone()).filter(|_| live > 0);
        Ok(moved_from.map(|partition| TargetRefusal::StillLive { partition, live }))
    }
}
