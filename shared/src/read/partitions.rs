//! Partitions as operators see them.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::StoreError;
use crate::ids::PartitionKey;
use crate::store::Store;
use crate::transactions::set_partition::limits::Limits;
use crate::transactions::set_partition::settings::Settings;

/// One partition. Times are RFC 3339, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub key: PartitionKey,
    pub settings: Settings,
    pub pause: Option<Pause>,
    pub closed_at: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    pub version: u64,
}

/// Why no round is claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    pub reason: String,
    pub by: String,
    /// `None`: until it is resumed.
    pub until: Option<String>,
    /// Its end has not passed yet.
    pub holds: bool,
}

macro_rules! select_partition {
    ($name:literal, $rest:literal) => {
        concat!(
            "/* ",
            $name,
            " */ SELECT partition_key, project, target_branch, project_id, path_template, allowed_prefixes, \
             JSON_OBJECT('max_requests', max_requests, 'max_bytes', max_bytes, 'min_requests', min_requests, \
                 'max_wait_s', max_wait_s, 'not_started_s', not_started_s, 'no_progress_s', no_progress_s, 'total_s', total_s, \
                 'content_attempts', content_attempts, 'infra_attempts', infra_attempts), \
             JSON_OBJECT('reason', pause_reason, 'by', pause_by, 'until', DATE_FORMAT(pause_until, '%Y-%m-%dT%H:%i:%s.%fZ'), \
                 'holds', pause_reason IS NOT NULL AND (pause_until IS NULL OR pause_until > CURRENT_TIMESTAMP(6))), \
             DATE_FORMAT(closed_at, '%Y-%m-%dT%H:%i:%s.%fZ'), DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ'), \
             DATE_FORMAT(updated_at, '%Y-%m-%dT%H:%i:%s.%fZ'), version FROM merge_partition ",
            $rest
        )
    };
}
pub(crate) use select_partition;

const READ_PARTITION: &str = select_partition!("partitions.read", "WHERE partition_key = ?");

const LIST_PARTITIONS: &str = select_partition!("partitions.list", "ORDER BY partition_key");

/// Columns of `select_partition!`.
pub(crate) type Columns = (String, String, String, Option<u64>, String, String, String, String, Option<String>, String, String, u64);

#[derive(Deserialize)]
struct PauseColumns {
    reason: Option<String>,
    by: Option<String>,
    until: Option<String>,
    /// MySQL says `1` or `true`, by version.
    holds: Value,
}

pub async fn partition(store: &Store, key: &PartitionKey) -> Result<Option<Partition>, StoreError> {
    store.first::<Columns>(READ_PARTITION, (key,)).await?.map(partition_from).transpose()
}

/// All partitions, by key.
pub async fn partitions(store: &Store) -> Result<Vec<Partition>, StoreError> {
    store.rows::<Columns>(LIST_PARTITIONS, ()).await?.into_iter().map(partition_from).collect()
}

pub(crate) fn partition_from(columns: Columns) -> Result<Partition, StoreError> {
    let (key, project, target_branch, project_id, path_template, prefixes, limits, pause, closed_at, created_at, updated_at, version) =
        columns;
    let corrupt = |what: &str, why: serde_json::Error| StoreError::corrupt(format!("{what} of the partition {key}: {why}"));
    let allowed_prefixes = serde_json::from_str(&prefixes).map_err(|why| corrupt("allowed prefixes", why))?;
    let limits: Limits = serde_json::from_str(&limits).map_err(|why| corrupt("limits", why))?;
    let pause: PauseColumns = serde_json::from_str(&pause).map_err(|why| corrupt("pause", why))?;
    let holds = pause.holds == json!(1) || pause.holds == json!(true);
    Ok(Partition {
        pause: pause.reason.zip(pause.by).map(|(reason, by)| Pause { reason, by, until: pause.until, holds }),
        settings: Settings { project, target_branch, project_id, path_template, allowed_prefixes, limits, closed: closed_at.is_some() },
        key: PartitionKey::parse(key).map_err(|why| StoreError::corrupt(why.to_string()))?,
        closed_at,
        created_at,
        updated_at,
        version,
    })
}

impl Partition {
    /// As operators are shown it; the forge's number is a string, as all ids of 64 bits are.
    pub fn to_json(&self) -> Value {
        let mut shown = json!({
            "partition": self.key, "project": self.settings.project, "target_branch": self.settings.target_branch,
            "project_id": self.settings.project_id.map(|id| id.to_string()), "path_template": self.settings.path_template,
            "allowed_prefixes": self.settings.allowed_prefixes,
            "paused": self.pause.as_ref().map(|pause| json!({
                "reason": pause.reason, "by": pause.by, "until": pause.until, "holds": pause.holds,
            })),
            "closed_at": self.closed_at, "created_at": self.created_at, "updated_at": self.updated_at, "version": self.version,
        });
        for (name, value) in Limits::NAMES.iter().zip(self.settings.limits.values()) {
            shown[*name] = value.into();
        }
        shown
    }
}
