//! GitLab's JSON, as far as we read it. Fields that may be absent or null are options; a value that this version
//! does not know becomes the member of our enum that means wait.

use serde::Deserialize;

use crate::forge::{Mergeability, MrFacts, MrState, PipelineState};

#[derive(Debug, Deserialize)]
pub(super) struct Commit {
    pub id: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub parent_ids: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Branch {
    pub commit: BranchHead,
    #[serde(default)]
    pub protected: bool,
    #[serde(default)]
    pub developers_can_merge: bool,
    #[serde(default)]
    pub can_push: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BranchHead {
    pub id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct User {
    pub id: u64,
    #[serde(default)]
    pub username: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pipeline {
    pub id: u64,
    #[serde(default)]
    pub sha: String,
    pub status: String,
    #[serde(default)]
    pub web_url: Option<String>,
}

/// A merge request, from the single GET, from a list or from the answer to a write.
#[derive(Debug, Deserialize)]
pub(super) struct MergeRequest {
    pub iid: u64,
    pub web_url: String,
    pub state: String,
    pub source_branch: String,
    pub target_branch: String,
    #[serde(default)]
    pub source_project_id: Option<u64>,
    #[serde(default)]
    pub target_project_id: Option<u64>,
    #[serde(default)]
    pub sha: Option<String>,
    #[serde(default)]
    pub merge_when_pipeline_succeeds: Option<bool>,
    #[serde(default)]
    pub closed_by: Option<User>,
    #[serde(default)]
    pub head_pipeline: Option<Pipeline>,
    /// Since 15.6.
    #[serde(default)]
    pub detailed_merge_status: Option<String>,
    #[serde(default)]
    pub merge_status: Option<String>,
    #[serde(default)]
    pub merge_commit_sha: Option<String>,
    #[serde(default)]
    pub squash_commit_sha: Option<String>,
    #[serde(default)]
    pub merge_error: Option<String>,
}

impl MergeRequest {
    /// A fork may have a branch of the same name.
    pub fn is_of_this_project(&self) -> bool {
        self.source_project_id == self.target_project_id
    }

    pub fn state(&self) -> MrState {
        match self.state.as_str() {
            "opened" => MrState::Opened,
            "locked" => MrState::Locked,
            "merged" => MrState::Merged,
            "closed" => MrState::Closed,
            _ => MrState::Unknown,
        }
    }

    pub fn head_sha(&self) -> Option<&str> {
        filled(self.sha.as_deref())
    }

    pub fn is_armed(&self) -> bool {
        self.merge_when_pipeline_succeeds == Some(true)
    }

    /// `conflict` without commits means that nothing has been looked at yet.
    pub fn mergeability(&self) -> Mergeability {
        let known = self.head_sha().is_some();
        match (self.detailed_merge_status.as_deref(), self.merge_status.as_deref()) {
            (Some("mergeable"), _) => Mergeability::Ready,
            (Some("conflict"), _) if known => Mergeability::Conflict,
            (Some("need_rebase"), _) => Mergeability::NeedsRebase,
            (Some(word), _) if NEEDS_A_PERSON.contains(&word) => Mergeability::Held(word.to_owned()),
            (Some("preparing" | "unchecked" | "checking"), _) => Mergeability::Unchecked,
            (Some(_), _) => Mergeability::Waiting,
            // Servers before 15.6 have only the old field.
            (None, Some("can_be_merged")) => Mergeability::Ready,
            (None, Some("cannot_be_merged")) if known => Mergeability::Conflict,
            (None, _) => Mergeability::Waiting,
        }
    }

    pub fn pipeline(&self) -> PipelineState {
        self.head_pipeline.as_ref().map_or(PipelineState::Absent, |pipeline| match pipeline.status.as_str() {
            "success" => PipelineState::Passed,
            "failed" => PipelineState::Failed,
            "canceled" => PipelineState::Canceled,
            "skipped" => PipelineState::Skipped,
            "manual" => PipelineState::Manual,
            _ => PipelineState::Underway,
        })
    }

    pub fn into_facts(self, closed_by_us: bool) -> MrFacts {
        MrFacts {
            state: self.state(),
            head_sha: self.head_sha().map(str::to_owned),
            armed: self.is_armed(),
            closed_by_us,
            pipeline: self.pipeline(),
            mergeability: self.mergeability(),
            iid: self.iid,
            url: self.web_url,
            source_branch: self.source_branch,
            target_branch: self.target_branch,
            closed_by: self.closed_by.map(|user| user.username),
            pipeline_url: self.head_pipeline.and_then(|pipeline| pipeline.web_url),
            merge_commit_sha: filled(self.merge_commit_sha.as_deref()).map(str::to_owned),
            squash_commit_sha: filled(self.squash_commit_sha.as_deref()).map(str::to_owned),
            merge_error: filled(self.merge_error.as_deref()).map(str::to_owned),
        }
    }
}

/// Values of `detailed_merge_status` that only a person, a setting or a new pipeline changes. All others (preparing,
/// unchecked, checking, approvals_syncing, ci_still_running, merge_time and those we do not know) pass by themselves.
const NEEDS_A_PERSON: [&str; 14] = [
    "ci_must_pass",
    "commits_status",
    "discussions_not_resolved",
    "draft_status",
    "jira_association_missing",
    "locked_lfs_files",
    "locked_paths",
    "merge_request_blocked",
    "not_approved",
    "not_open",
    "requested_changes",
    "security_policy_violations",
    "status_checks_must_pass",
    "title_regex",
];

fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn with(fields: serde_json::Value) -> MergeRequest {
        let mut all = json!({"iid": 7, "web_url": "http://h/7", "state": "opened", "source_branch": "b",
            "target_branch": "main", "sha": "abc", "a_field_of_tomorrow": {"x": 1}});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_value_of_tomorrow_means_wait() {
        let found = with(json!({"state": "dreaming", "detailed_merge_status": "can_be_merged",
            "head_pipeline": {"id": 1, "status": "levitating"}}));
        assert_eq!(found.state(), MrState::Unknown);
        assert_eq!(found.mergeability(), Mergeability::Waiting);
        assert_eq!(found.pipeline(), PipelineState::Underway);
    }

    #[test]
    fn the_old_status_counts_only_where_the_new_one_is_missing() {
        assert_eq!(with(json!({"merge_status": "can_be_merged"})).mergeability(), Mergeability::Ready);
        assert_eq!(with(json!({"merge_status": "cannot_be_merged"})).mergeability(), Mergeability::Conflict);
        assert_eq!(with(json!({"merge_status": "cannot_be_merged_recheck"})).mergeability(), Mergeability::Waiting);
        let both = with(json!({"merge_status": "can_be_merged", "detailed_merge_status": "checking"}));
        assert_eq!(both.mergeability(), Mergeability::Unchecked);
    }

    #[test]
    fn a_conflict_of_a_merge_request_without_commits_is_not_believed() {
        let empty = with(json!({"sha": null, "detailed_merge_status": "conflict", "has_conflicts": true}));
        assert_eq!(empty.mergeability(), Mergeability::Waiting);
        assert_eq!(with(json!({"detailed_merge_status": "conflict"})).mergeability(), Mergeability::Conflict);
    }

    #[test]
    fn a_hold_keeps_the_forges_own_word() {
        let held = with(json!({"detailed_merge_status": "not_approved"})).mergeability();
        assert_eq!(held, Mergeability::Held("not_approved".into()));
    }

    #[test]
    fn empty_ids_and_missing_fields_are_none() {
        let facts = with(json!({"sha": "", "merge_commit_sha": "", "merge_error": null})).into_facts(false);
        assert_eq!((facts.head_sha, facts.merge_commit_sha, facts.merge_error), (None, None, None));
        assert_eq!((facts.pipeline, facts.armed), (PipelineState::Absent, false));
    }
}
