//! A merge request and its state machine: opened, locked while a merge runs, then closed or merged.

use std::time::Instant;

use serde::Serialize;
use time::OffsetDateTime;

use super::{
    pipeline::{Pipeline, Status},
    settings::{MergeMethod, Settings},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MrState {
    Opened,
    Locked,
    Closed,
    Merged,
}

impl MrState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Locked => "locked",
            Self::Closed => "closed",
            Self::Merged => "merged",
        }
    }

    /// GitLab's `state_id` in webhooks.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Opened => 1,
            Self::Closed => 2,
            Self::Merged => 3,
            Self::Locked => 4,
        }
    }
}

/// How far the asynchronous mergeability check has come; each read or tick moves it one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Preparing,
    Unchecked,
    Checking,
    /// Checked against this target head.
    Done {
        target: String,
        conflict: bool,
        /// The target has commits that the source has not.
        behind: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub id: u64,
    pub username: String,
    pub name: String,
}

impl Person {
    /// The user the token belongs to: the one our commits and merges are made by.
    pub fn bot() -> Self {
        Self { id: 42, username: "muster-bot".to_owned(), name: "Muster".to_owned() }
    }

    /// A person of this name; the same name is always the same user.
    pub fn named(username: &str) -> Self {
        let id = username.bytes().fold(1_000_u64, |id, byte| id.wrapping_mul(31).wrapping_add(u64::from(byte)) % 900_000 + 1_000);
        Self { id, username: username.to_owned(), name: username.to_owned() }
    }

    pub fn signature(&self) -> super::repo::Signature {
        super::repo::Signature { name: self.name.clone(), email: format!("{}@example.test", self.username) }
    }
}

/// What the merge is to be made with; kept from the moment auto-merge is armed.
#[derive(Clone, Debug, Default)]
pub(crate) struct MergeParams {
    pub sha: Option<String>,
    pub merge_message: Option<String>,
    pub squash: bool,
    pub squash_message: Option<String>,
    pub remove_source: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct MergeRequest {
    pub iid: u64,
    pub title: String,
    pub description: String,
    pub labels: Vec<String>,
    pub author: Person,
    pub source_branch: String,
    pub target_branch: String,
    pub state: MrState,
    /// Head of the source branch as last seen.
    pub head: String,
    /// Head of the target branch as last seen.
    pub target_head: String,
    pub source_missing: bool,
    pub squash: bool,
    pub remove_source: bool,
    /// Files that differ from the merge base; known once checked.
    pub changed_files: Option<usize>,
    /// Merge base of head and target; known once checked.
    pub base: Option<String>,
    pub check: Check,
    pub check_at: Instant,
    pub auto_merge: Option<MergeParams>,
    pub merge_error: Option<String>,
    pub merge_commit_sha: Option<String>,
    pub squash_commit_sha: Option<String>,
    pub merged: Option<(OffsetDateTime, Person)>,
    pub closed: Option<(OffsetDateTime, Person)>,
    pub prepared_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    /// When the pipeline of the present head is to appear.
    pub pipeline_due: Option<Instant>,
}

impl MergeRequest {
    pub fn draft(&self) -> bool {
        let title = self.title.to_lowercase();
        ["draft:", "[draft]", "(draft)"].iter().any(|mark| title.starts_with(mark))
    }

    pub fn conflict(&self) -> bool {
        matches!(self.check, Check::Done { conflict: true, .. })
    }

    /// Back to the start of the check, because one of the branches moved.
    pub fn recheck(&mut self) {
        if self.check != Check::Preparing {
            self.check = Check::Unchecked;
            self.check_at = Instant::now();
        }
    }

    /// GitLab's old `merge_status`.
    pub fn merge_status(&self) -> &'static str {
        match self.check {
            Check::Preparing => "preparing",
            Check::Unchecked => "unchecked",
            Check::Checking => "checking",
            Check::Done { conflict: true, .. } => "cannot_be_merged",
            Check::Done { conflict: false, .. } => "can_be_merged",
        }
    }

    /// `detailed_merge_status`: the first check that does not pass, in GitLab's order, the pipeline last.
    pub fn detailed_status(&self, pipeline: Option<&Pipeline>, settings: &Settings) -> &'static str {
        if self.state != MrState::Opened {
            return "not_open";
        }
        match self.check {
            Check::Preparing => return "preparing",
            Check::Checking => return "checking",
            Check::Unchecked => return "unchecked",
            Check::Done { .. } => {}
        }
        if self.source_missing {
            return "commits_status";
        }
        if self.draft() {
            return "draft_status";
        }
        if self.conflict() {
            return "conflict";
        }
        if settings.merge_method != MergeMethod::Merge && matches!(self.check, Check::Done { behind: true, .. }) {
            return "need_rebase";
        }
        if !settings.pipelines_must_succeed {
            return "mergeable";
        }
        match pipeline.map(|pipeline| pipeline.status) {
            Some(Status::Success) => "mergeable",
            Some(Status::Skipped) if settings.skipped_counts => "mergeable",
            Some(status) if status.is_active() => "ci_still_running",
            _ => "ci_must_pass",
        }
    }
}
