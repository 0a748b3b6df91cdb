//! Stops the rounds of a partition, or lets them go on. What is on its way settles all the same.
//!
//! Guard: the row is in the version read under the gate. Refusals: `UnknownPartition`, `UntilInThePast`.
//! Locks: gate, audit.

use std::fmt;

use crate::error::StoreError;
use crate::ids::PartitionKey;
use crate::moment::Moment;
use crate::read::partitions::{Columns, Partition, partition_from, select_partition};
use crate::transactions::command::{Change, Command, CommandOutcome, Concerns};
use crate::tx::{Decision, Guarded, Tx, refuse};

/// What becomes of a partition's rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounds {
    /// No claim until then, or until they are resumed.
    Paused {
        until: Option<Moment>,
    },
    Resumed,
}

#[derive(Debug, Clone)]
pub struct Pause {
    pub partition: PartitionKey,
    pub rounds: Rounds,
    /// Its reason is the one that a paused round tells.
    pub command: Command,
}

pub type PauseOutcome = CommandOutcome<PauseRefusal>;

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseRefusal {
    UnknownPartition {
        partition: PartitionKey,
    },
    /// By the database's clock.
    UntilInThePast {
        until: Moment,
    },
}

impl fmt::Display for PauseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition { partition } => write!(f, "there is no partition {partition}; list_partitions names those there are"),
            Self::UntilInThePast { until } => {
                write!(f, "until {} has passed by the database's clock; give a later one, or leave it out", until.to_rfc3339())
            }
        }
    }
}

const LOCK_PARTITION: &str = select_partition!("pause.lock_gate", "FORCE INDEX (PRIMARY) WHERE partition_key = ? FOR UPDATE");

const READ_WRITTEN_PARTITION: &str = select_partition!("pause.read_written", "WHERE partition_key = ?");

const IS_PAST: &str = "/* pause.is_past */ SELECT CAST(? AS DATETIME(6)) <= CURRENT_TIMESTAMP(6)";

const SET_READ_PAUSE: &str = "/* pause.set_pause_of_read_partition */ \
    UPDATE merge_partition SET pause_reason = ?, pause_by = ?, pause_until = ?, updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE partition_key = ? AND version = ?";

impl Guarded for Pause {
    const NAME: &'static str = "pause";
    type Outcome = PauseOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<PauseOutcome>, StoreError> {
        let Some(now) = tx.first::<Columns>(LOCK_PARTITION, (&self.partition,)).await?.map(partition_from).transpose()? else {
            return refuse(CommandOutcome::Refused(PauseRefusal::UnknownPartition { partition: self.partition.clone() }));
        };
        if let Some(done) = self.command.done_before(tx).await? {
            return refuse(done);
        }
        if self.is_so_already(&now) {
            return refuse(CommandOutcome::Already { state: now.to_json() });
        }
        let (reason, by, until) = match self.rounds {
            Rounds::Paused { until } => (Some(&self.command.reason), Some(&self.command.actor), until),
            Rounds::Resumed => (None, None, None),
        };
        if let Some(until) = until
            && tx.first::<(i64,)>(IS_PAST, (until.to_sql(),)).await? != Some((0,))
        {
            return refuse(CommandOutcome::Refused(PauseRefusal::UntilInThePast { until }));
        }
        let columns = (reason, by, until.map(Moment::to_sql), &self.partition, now.version);
        tx.write_exactly(1, SET_READ_PAUSE, columns).await?; // Held exclusively since it was read.
        let Some(written) = tx.first::<Columns>(READ_WRITTEN_PARTITION, (&self.partition,)).await?.map(partition_from).transpose()? else {
            return Err(StoreError::corrupt(format!("the partition {} just written could not be read", self.partition)));
        };
        let change = Change { before: now.to_json(), after: written.to_json() };
        let concerns = Concerns { partition: Some(self.partition.clone()), ..Concerns::default() };
        self.command.conclude(tx, &concerns, change).await
    }

    fn outcome_name(outcome: &PauseOutcome) -> &'static str {
        outcome.name()
    }
}

impl Pause {
    fn is_so_already(&self, now: &Partition) -> bool {
        match (self.rounds, &now.pause) {
            (Rounds::Resumed, pause) => pause.is_none(),
            (Rounds::Paused { .. }, None) => false,
            (Rounds::Paused { until }, Some(pause)) => {
                pause.holds
                    && pause.reason == self.command.reason
                    && pause.by == self.command.actor.as_str()
                    && pause.until == until.map(Moment::to_rfc3339)
            }
        }
    }
}
