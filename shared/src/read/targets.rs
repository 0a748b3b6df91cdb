//! Targets as operators see them.

use serde_json::{Value, json};

use crate::error::StoreError;
use crate::ids::{PartitionKey, TargetKey};
use crate::store::Store;

/// Targets in one answer, at most.
pub const PAGE_MAX: u32 = 500;

/// One target. Times are RFC 3339, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub key: TargetKey,
    pub partition: PartitionKey,
    /// `None`: seats are not counted.
    pub capacity: Option<u64>,
    /// Kept only while a capacity is set.
    pub used: u64,
    pub closed_at: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    pub version: u64,
}

macro_rules! select_target {
    ($name:literal, $rest:literal) => {
        concat!(
            "/* ",
            $name,
            " */ SELECT target_key, partition_key, capacity, used, DATE_FORMAT(closed_at, '%Y-%m-%dT%H:%i:%s.%fZ'), \
             DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ'), DATE_FORMAT(updated_at, '%Y-%m-%dT%H:%i:%s.%fZ'), version FROM target ",
            $rest
        )
    };
}
pub(crate) use select_target;

const READ_TARGET: &str = select_target!("targets.read", "WHERE target_key = ?");

const LIST_TARGETS: &str = select_target!("targets.list", "WHERE target_key > ? ORDER BY target_key LIMIT ?");

const LIST_TARGETS_OF_PARTITION: &str = select_target!(
    "targets.list_of_partition",
    "FORCE INDEX (idx_partition) WHERE partition_key = ? AND target_key > ? ORDER BY target_key LIMIT ?"
);

/// Columns of `select_target!`.
pub(crate) type Columns = (String, String, Option<u64>, u64, Option<String>, String, String, u64);

pub async fn target(store: &Store, key: &TargetKey) -> Result<Option<Target>, StoreError> {
    store.first::<Columns>(READ_TARGET, (key,)).await?.map(target_from).transpose()
}

/// At most `limit` targets by key, those after `after`; of one partition or of all.
pub async fn targets(
    store: &Store,
    partition: Option<&PartitionKey>,
    after: Option<&TargetKey>,
    limit: u32,
) -> Result<Vec<Target>, StoreError> {
    let after = after.map_or("", TargetKey::as_str);
    let rows = match partition {
        Some(partition) => store.rows::<Columns>(LIST_TARGETS_OF_PARTITION, (partition, after, limit.min(PAGE_MAX))).await?,
        None => store.rows::<Columns>(LIST_TARGETS, (after, limit.min(PAGE_MAX))).await?,
    };
    rows.into_iter().map(target_from).collect()
}

pub(crate) fn target_from(columns: Columns) -> Result<Target, StoreError> {
    let (key, partition, capacity, used, closed_at, created_at, updated_at, version) = columns;
    Ok(Target {
        key: TargetKey::parse(key).map_err(|why| StoreError::corrupt(why.to_string()))?,
        partition: PartitionKey::parse(partition).map_err(|why| StoreError::corrupt(why.to_string()))?,
        capacity,
        used,
        closed_at,
        created_at,
        updated_at,
        version,
    })
}

impl Target {
    /// As operators are shown it; `used` is null where it is not kept.
    pub fn to_json(&self) -> Value {
        json!({
            "target_key": self.key, "partition": self.partition, "capacity": self.capacity,
            "used": self.capacity.map(|_| self.used), "closed_at": self.closed_at,
            "created_at": self.created_at, "updated_at": self.updated_at, "version": self.version,
        })
    }
}
