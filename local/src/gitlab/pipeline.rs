//! Pipelines: what they are planned to do, and the steps a real clock takes them through.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// What the next pipelines do. Durations are milliseconds in JSON (`after_ms`), counted from the start of the pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PipelinePlan {
    Pass {
        #[serde(rename = "after_ms", with = "millis", default = "one_second")]
        after: Duration,
    },
    Fail {
        #[serde(rename = "after_ms", with = "millis", default = "one_second")]
        after: Duration,
    },
    /// Runs until it is cancelled, or ended through the admin API.
    Hang,
    /// No pipeline ever appears.
    None,
    /// Appears as skipped.
    Skip,
    /// Fails where the merge request touches a path with this text in it; passes otherwise.
    FailIfPath {
        substring: String,
        #[serde(rename = "after_ms", with = "millis", default = "one_second")]
        after: Duration,
    },
    /// Fails where a line added by the merge request has this text in it; passes otherwise.
    FailIfContent {
        substring: String,
        #[serde(rename = "after_ms", with = "millis", default = "one_second")]
        after: Duration,
    },
}

impl Default for PipelinePlan {
    fn default() -> Self {
        Self::Pass { after: one_second() }
    }
}

impl PipelinePlan {
    pub fn pass(after: Duration) -> Self {
        Self::Pass { after }
    }

    pub fn fail(after: Duration) -> Self {
        Self::Fail { after }
    }
}

fn one_second() -> Duration {
    Duration::from_secs(1)
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pending,
    Running,
    Success,
    Failed,
    Canceled,
    Skipped,
    Manual,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Skipped => "skipped",
            Self::Manual => "manual",
        }
    }

    pub(crate) fn is_active(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

/// What a pipeline runs for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunsOn {
    MergeRequest(u64),
    Branch(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub id: u64,
    pub runs_on: RunsOn,
    pub sha: String,
    pub status: Status,
    /// What it will end as, and when; `None`: it hangs.
    pub verdict: Option<(Status, Duration)>,
    /// When the present status was entered.
    pub since: Instant,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
}

/// How long a pipeline stays pending before a runner takes it.
const PENDING: Duration = Duration::from_millis(10);

impl Pipeline {
    pub fn new(id: u64, runs_on: RunsOn, sha: String, verdict: Option<(Status, Duration)>) -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            id,
            runs_on,
            sha,
            status: Status::Pending,
            verdict,
            since: Instant::now(),
            created_at: now,
            updated_at: now,
            finished_at: None,
        }
    }

    pub fn is_for(&self, iid: u64) -> bool {
        self.runs_on == RunsOn::MergeRequest(iid)
    }

    pub fn reference(&self) -> String {
        match &self.runs_on {
            RunsOn::MergeRequest(iid) => format!("refs/merge-requests/{iid}/head"),
            RunsOn::Branch(name) => name.clone(),
        }
    }

    pub fn source(&self) -> &'static str {
        match self.runs_on {
            RunsOn::MergeRequest(_) => "merge_request_event",
            RunsOn::Branch(_) => "push",
        }
    }

    pub fn enter(&mut self, status: Status) {
        self.status = status;
        self.since = Instant::now();
        self.updated_at = OffsetDateTime::now_utc();
        if !status.is_active() {
            self.finished_at = Some(self.updated_at);
        }
    }

    /// When the next step is due, and which one.
    pub fn next(&self) -> Option<(Instant, Status)> {
        match (self.status, self.verdict) {
            (Status::Pending, _) => Some((self.since + PENDING, Status::Running)),
            (Status::Running, Some((verdict, after))) => Some((self.since + after, verdict)),
            _ => None,
        }
    }
}
