//! Settings of the project, its namespace and the token: what a preflight reads, and what merges obey.

use serde::{Deserialize, Serialize};

/// How changes reach the target branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeMethod {
    /// A merge commit, always.
    #[default]
    Merge,
    /// A merge commit, only if the source has the whole target ("semi-linear").
    RebaseMerge,
    /// No merge commit; only if the source has the whole target.
    Ff,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SquashOption {
    Never,
    Always,
    DefaultOn,
    #[default]
    DefaultOff,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub merge_method: MergeMethod,
    pub squash_option: SquashOption,
    /// "Pipelines must succeed".
    pub pipelines_must_succeed: bool,
    /// "Skipped pipelines are considered successful".
    pub skipped_counts: bool,
    /// Nothing can be written.
    pub archived: bool,
    /// Namespace setting: a merge must carry `sha`.
    pub sha_required: bool,
    /// Whether the target branch is a protected one.
    pub target_protected: bool,
    /// Whether the token's user may push to (and so merge into) the target branch.
    pub may_merge: bool,
    pub token_scopes: Vec<String>,
    /// `YYYY-MM-DD`; `None`: never.
    pub token_expires_at: Option<String>,
    /// Branches with this text in their name may not be pushed to.
    pub refused_branch: Option<String>,
    /// Push rule: commits that touch a path with this text in it are refused.
    pub prohibited_path: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            merge_method: MergeMethod::default(),
            squash_option: SquashOption::default(),
            pipelines_must_succeed: true,
            skipped_counts: false,
            archived: false,
            sha_required: false,
            target_protected: true,
            may_merge: true,
            token_scopes: vec!["api".to_owned()],
            token_expires_at: Some("2099-12-31".to_owned()),
            refused_branch: None,
            prohibited_path: None,
        }
    }
}

impl Settings {
    /// Whether a merge squashes, where the call asks for it or not.
    pub(crate) fn squashes(&self, asked: bool) -> bool {
        match self.squash_option {
            SquashOption::Never => false,
            SquashOption::Always => true,
            SquashOption::DefaultOn | SquashOption::DefaultOff => asked,
        }
    }
}
