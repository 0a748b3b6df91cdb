//! Makes a partition, or changes it: the only way in which one comes to be.
//!
//! Guard: the row is in the version read under the gate, or absent.
//! Refusals: `Invalid`, `BranchTaken`, `BatchActive`, `StillInUse`.
//! Locks, in house order: gate, audit; a partition that closes also holds the rows of its targets.

pub mod limits;
pub mod settings;

use std::fmt;

use mysql_async::Value as Column;
use serde_json::{Value, json};

use crate::error::StoreError;
use crate::ids::{BatchId, PartitionKey};
use crate::read::partitions::{Columns, Partition, partition_from, select_partition};
use crate::transactions::command::{Change, Command, CommandOutcome, Concerns};
use crate::transactions::members::CHUNK;
use crate::transactions::set_partition::settings::{PartitionWish, Settings};
use crate::tx::{Decision, Guarded, Inserted, Tx, refuse, rerun};

#[derive(Debug, Clone)]
pub struct SetPartition {
    pub partition: PartitionKey,
    pub wish: PartitionWish,
    pub command: Command,
}

pub type SetPartitionOutcome = CommandOutcome<PartitionRefusal>;

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionRefusal {
    /// Everything that is wrong with the settings, one sentence each.
    Invalid(Vec<String>),
    /// Two partitions on one branch would be two slots.
    BranchTaken { project: String, target_branch: String, by: String },
    /// Project and branch hold still while a batch is on its way to them.
    BatchActive { batch: BatchId },
    /// What keeps it from being closed.
    StillInUse(Vec<String>),
}

impl fmt::Display for PartitionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(problems) => f.write_str(&problems.join("; ")),
            Self::BranchTaken { project, target_branch, by } => write!(
                f,
                "the partition {by} has branch {target_branch} of {project} already, and one branch has one slot; \
                 use that partition, or name another branch"
            ),
            Self::BatchActive { batch } => write!(
                f,
                "batch {batch} is on its way to the present branch, so project and target_branch cannot change; \
                 wait until it has settled, or abort it"
            ),
            Self::StillInUse(holders) => write!(
                f,
                "it cannot be closed: {}; revoke or move what lives, let what waits and runs end, then close it",
                holders.join(", ")
            ),
        }
    }
}

const LOCK_PARTITION: &str = select_partition!("set_partition.lock_gate", "FORCE INDEX (PRIMARY) WHERE partition_key = ? FOR UPDATE");

const READ_PARTITION: &str = select_partition!("set_partition.read_written", "WHERE partition_key = ?");

const READ_BRANCH_HOLDER: &str = "/* set_partition.read_branch_holder */ \
    SELECT partition_key FROM merge_partition WHERE target_branch = ? AND (project = ? OR project_id = ?) AND partition_key <> ? LIMIT 1";

const READ_ACTIVE_BATCH: &str =
    "/* set_partition.read_active_batch */ SELECT id FROM merge_batch WHERE partition_key = ? AND active_slot = 1";

const INSERT_ABSENT_PARTITION: &str = "/* set_partition.insert_absent_partition */ \
    INSERT INTO merge_partition (project, target_branch, project_id, path_template, allowed_prefixes, \
        max_requests, max_bytes, min_requests, max_wait_s, not_started_s, no_progress_s, total_s, content_attempts, infra_attempts, \
        closed_at, partition_key) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, IF(?, CURRENT_TIMESTAMP(6), NULL), ?)";

const UPDATE_READ_PARTITION: &str = "/* set_partition.update_read_partition */ \
    UPDATE merge_partition SET project = ?, target_branch = ?, project_id = ?, path_template = ?, allowed_prefixes = ?, \
        max_requests = ?, max_bytes = ?, min_requests = ?, max_wait_s = ?, not_started_s = ?, no_progress_s = ?, total_s = ?, \
        content_attempts = ?, infra_attempts = ?, \
        closed_at = IF(?, COALESCE(closed_at, CURRENT_TIMESTAMP(6)), NULL), updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE partition_key = ? AND version = ?";

const READ_TARGETS: &str = "/* set_partition.read_targets */ SELECT target_key FROM target WHERE partition_key = ? ORDER BY target_key";

/// Waits for the admissions that hold one of these, and makes later ones wait until they can read `closed_at`.
/// A locking read cannot be joined to JSON_TABLE (error 3569), so it is a write that changes nothing but versions.
const HOLD_READ_TARGETS: &str = "/* set_partition.hold_read_targets */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS ( \
        target_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
    STRAIGHT_JOIN target t FORCE INDEX (PRIMARY) ON t.target_key = j.target_key \
    SET t.version = t.version + 1 WHERE t.partition_key = ?";

const COUNT_USES: &str = "/* set_partition.count_uses */ SELECT \
    (SELECT COUNT(*) FROM merge_batch_request WHERE partition_key = ? AND batch_id IS NULL), \
    (SELECT MAX(id) FROM merge_batch WHERE partition_key = ? AND active_slot = 1), \
    (SELECT COUNT(*) FROM target t JOIN binding b ON b.target_key = t.target_key \
     WHERE t.partition_key = ? AND b.status IN (1, 2, 3, 5))";

impl Guarded for SetPartition {
    const NAME: &'static str = "set_partition";
    type Outcome = SetPartitionOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<SetPartitionOutcome>, StoreError> {
        let current = tx.first::<Columns>(LOCK_PARTITION, (&self.partition,)).await?.map(partition_from).transpose()?;
        if let Some(done) = self.command.done_before(tx).await? {
            return refuse(done);
        }
        let settings = match self.wish.over(current.as_ref().map(|now| &now.settings)) {
            Ok(settings) => settings,
            Err(problems) => return refuse(CommandOutcome::Refused(PartitionRefusal::Invalid(problems))),
        };
        if let Some(now) = current.as_ref().filter(|now| now.settings == settings) {
            return refuse(CommandOutcome::Already { state: now.to_json() });
        }
        if let Some(refusal) = self.in_the_way(tx, current.as_ref(), &settings).await? {
            return refuse(CommandOutcome::Refused(refusal));
        }
        let inserted = match &current {
            Some(now) => tx.insert_new(UPDATE_READ_PARTITION, self.columns(&settings, Some(now.version))).await?,
            None => tx.insert_new(INSERT_ABSENT_PARTITION, self.columns(&settings, None)).await?,
        };
        match inserted {
            Inserted::New(_) => {}
            // Made, or put on this branch, by somebody else since it was read: the next look tells which.
            Inserted::Duplicate(_) => return rerun(CommandOutcome::Preempted),
        }
        let written = tx.first::<Columns>(READ_PARTITION, (&self.partition,)).await?.map(partition_from).transpose()?;
        let Some(written) = written.filter(|written| written.settings == settings) else {
            return Err(StoreError::corrupt(format!("the partition {} is not as it was just written", self.partition)));
        };
        let change = Change { before: current.as_ref().map_or(Value::Null, Partition::to_json), after: written.to_json() };
        let concerns = Concerns { partition: Some(self.partition.clone()), ..Concerns::default() };
        self.command.conclude(tx, &concerns, change).await
    }

    fn outcome_name(outcome: &SetPartitionOutcome) -> &'static str {
        outcome.name()
    }
}

impl SetPartition {
    async fn in_the_way(
        &self,
        tx: &mut Tx<'_>,
        current: Option<&Partition>,
        settings: &Settings,
    ) -> Result<Option<PartitionRefusal>, StoreError> {
        let holder = (&settings.target_branch, &settings.project, settings.project_id, &self.partition);
        if let Some((by,)) = tx.first::<(String,)>(READ_BRANCH_HOLDER, holder).await? {
            let (project, target_branch) = (settings.project.clone(), settings.target_branch.clone());
            return Ok(Some(PartitionRefusal::BranchTaken { project, target_branch, by }));
        }
        let Some(now) = current.map(|now| &now.settings) else { return Ok(None) };
        let moves = (&now.project, &now.target_branch) != (&settings.project, &settings.target_branch);
        if moves && let Some((batch,)) = tx.first::<(u64,)>(READ_ACTIVE_BATCH, (&self.partition,)).await? {
            return Ok(Some(PartitionRefusal::BatchActive { batch: BatchId(batch) }));
        }
        if settings.closed && !now.closed {
            return Ok(self.still_in_use(tx).await?.map(PartitionRefusal::StillInUse));
        }
        Ok(None)
    }

    async fn still_in_use(&self, tx: &mut Tx<'_>) -> Result<Option<Vec<String>>, StoreError> {
        let targets = tx.rows::<(String,)>(READ_TARGETS, (&self.partition,)).await?;
        for chunk in targets.chunks(CHUNK) {
            let keys: Vec<&String> = chunk.iter().map(|(key,)| key).collect();
            tx.write(HOLD_READ_TARGETS, (json!(keys).to_string(), &self.partition)).await?; // One that has moved away meanwhile is not ours to hold.
        }
        let key = &self.partition;
        let Some((waiting, batch, live)) = tx.first::<(u64, Option<u64>, u64)>(COUNT_USES, (key, key, key)).await? else {
            return Err(StoreError::corrupt("a count without a row"));
        };
        let holders: Vec<String> = [
            (waiting > 0).then(|| format!("{waiting} requests wait in it")),
            batch.map(|id| format!("batch {id} runs in it")),
            (live > 0).then(|| format!("{live} relationships of its targets live")),
        ]
        .into_iter()
        .flatten()
        .collect();
        Ok((!holders.is_empty()).then_some(holders))
    }

    /// Columns in the order of both statements.
    fn columns(&self, settings: &Settings, read_version: Option<u64>) -> Vec<Column> {
        let mut columns: Vec<Column> = vec![
            (&settings.project).into(),
            (&settings.target_branch).into(),
            settings.project_id.into(),
            (&settings.path_template).into(),
            json!(settings.allowed_prefixes).to_string().into(),
        ];
        columns.extend(settings.limits.values().into_iter().map(Column::from));
        columns.push(settings.closed.into());
        columns.push((&self.partition).into());
        columns.extend(read_version.map(Column::from));
        columns
    }
}
