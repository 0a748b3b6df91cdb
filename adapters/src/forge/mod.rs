//! What Muster asks of a forge, in Muster's words.
//!
//! Every verb is idempotent: asked again after a lost answer, it finds what the first call did.
//! Only an implementation (`gitlab`) knows a status code, a field name or an error text.

pub mod gitlab;

use std::collections::BTreeMap;
use std::future::Future;

use serde::{Deserialize, Serialize};

/// One project and target branch on the forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRef {
    /// Path of the project, such as `acme/access`.
    pub path: String,
    /// The forge's number of the project, known after a preflight; survives a rename of the path.
    pub id: Option<u64>,
    pub target_branch: String,
}

/// A path to look up at a commit; `hash` asks for the SHA-256 of its content too (costs its bytes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathQuery {
    pub path: String,
    pub hash: bool,
}

/// A file that exists at a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingFile {
    /// Git's object id of the blob: SHA-1 over `blob <length>\0<content>`, lower-case hex.
    pub blob_id: String,
    /// Lower-case hex SHA-256 of the content, where the query asked for it.
    pub sha256: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAction {
    Create { path: String, content: String },
    Update { path: String, content: String },
    Delete { path: String },
}

/// One commit on a new branch that is named after the claim token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitPlan {
    pub branch: String,
    /// Full commit id the branch starts at.
    pub start_sha: String,
    /// Ends with the trailer line `Muster-Batch: <token hex>`.
    pub message: String,
    /// The claim token as lower-case hex: the value of the trailer.
    pub token_hex: String,
    /// Never empty.
    pub actions: Vec<FileAction>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitAnswer {
    /// The branch holds exactly our one commit, made now or by an earlier attempt.
    Committed { head_sha: String },
    /// The branch exists and its head is not our commit.
    Foreign { head_sha: String },
    /// The forge refuses this content for good (a push rule, a hook, a path it will not take).
    Refused { reason: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeRequestPlan {
    pub branch: String,
    pub head_sha: String,
    pub title: String,
    pub description: String,
}

/// A merge request of our branch, whatever its state: an existing one is always adopted, never doubled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeRequestRef {
    pub iid: u64,
    pub url: String,
}

/// State of a merge request, as the forge tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MrState {
    Opened,
    /// A merge is in flight, or stuck: wait, never close, never re-create.
    Locked,
    Merged,
    Closed,
    /// A value this version does not know: wait.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineState {
    /// No pipeline is known for this head yet.
    Absent,
    /// Created, pending, running, or any value this version does not know.
    Underway,
    Passed,
    Failed,
    Canceled,
    Skipped,
    /// Waits for a person.
    Manual,
}

/// May the forge merge it?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mergeability {
    /// Not looked at yet: the forge says no to whatever is asked before it has. Reading makes it look.
    Unchecked,
    /// Waits for a pipeline, or says what this version does not know.
    Waiting,
    Ready,
    /// Conflicts with the target branch.
    Conflict,
    NeedsRebase,
    /// Needs a person or a setting: the forge's own word for it.
    Held(String),
}

/// One merge request as read alone (never from a list, which may be hours old).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MrFacts {
    pub iid: u64,
    pub url: String,
    pub state: MrState,
    pub source_branch: String,
    pub target_branch: String,
    /// Head of the source branch as the merge request sees it; `None` while it is being prepared.
    pub head_sha: Option<String>,
    /// Auto-merge is set.
    pub armed: bool,
    /// Who closed it, if it is closed and the forge says so.
    pub closed_by: Option<String>,
    /// It was closed by the user that our token belongs to.
    pub closed_by_us: bool,
    pub pipeline: PipelineState,
    pub pipeline_url: Option<String>,
    pub mergeability: Mergeability,
    pub merge_commit_sha: Option<String>,
    pub squash_commit_sha: Option<String>,
    pub merge_error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArmAnswer {
    /// The forge says it has merged.
    Merged,
    /// Auto-merge is set for our head.
    Armed,
    /// Not yet possible: ask again later.
    NotYet {
        reason: String,
    },
    /// Will not become possible by waiting: conflict, needs rebase, or a person's decision.
    Never {
        reason: String,
    },
    Closed,
    /// The head of the branch is not the commit we made.
    ForeignHead {
        head_sha: String,
    },
}

/// What a batch would leave behind on the target branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    pub token_hex: String,
    /// The branch's commits start after this one; nothing older needs to be looked at.
    pub start_sha: String,
    /// Commit ids under which it may be there: our head, the merge commit, the squash commit.
    pub commits: Vec<String>,
    /// Expected blob id of each path; `None` where the path must be gone.
    pub blobs: BTreeMap<String, Option<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Containment {
    /// On the target branch, by this commit, which carries our trailer and our content.
    Yes {
        commit: String,
    },
    No,
    /// A commit that carries our trailer is on the target branch with other content: the paths that differ.
    OtherContent {
        commit: String,
        paths: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenMergeRequest {
    pub iid: u64,
    pub branch: String,
    pub url: String,
}

/// What preflight found out about the project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preflight {
    pub project_id: u64,
    /// With these nothing would ever merge, or not as it was rendered: no partition is set up. In full sentences.
    pub refusals: Vec<String>,
    /// What hinders or endangers it, in full sentences; empty when all is well.
    pub problems: Vec<String>,
}

/// Every variant says what happened, what it means and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgeError {
    /// Nothing is known about the effect of the call; ask again.
    #[error("the forge could not be reached ({detail}); whether the call took effect is unknown, so it is asked again")]
    Unreachable { detail: String },
    #[error("the forge limits our rate; asked again in {retry_after_s} s")]
    RateLimited { retry_after_s: u64 },
    /// Resource lock, mergeability still checked, source branch not yet visible…
    #[error("the forge is busy with this object ({detail}); asked again later")]
    Busy { detail: String },
    #[error("the forge does not accept our token ({detail}); give GITLAB_TOKEN a valid token with scope `api`")]
    Unauthorized { detail: String },
    #[error("the forge does not know {what}; check the partition's project and target branch")]
    NotFound { what: String },
    /// An answer that no rule covers: alarmed, never looped on.
    #[error("the forge answered {status} to {call}, which no rule covers: {detail}")]
    Unexpected { call: &'static str, status: u16, detail: String },
}

impl ForgeError {
    /// Would the same call help if it were made again?
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::RateLimited { .. } | Self::Busy { .. })
    }
}

type Answer<T> = Result<T, ForgeError>;

/// A forge. All calls carry their own time limits (connect 3 s, whole call 15 s by default).
pub trait Forge: Send + Sync {
    /// Commit id of the target branch's head.
    fn target_head(&self, project: &ProjectRef) -> impl Future<Output = Answer<String>> + Send;

    /// Which of `paths` exist at `commit`; at most ⌈paths / 100⌉ calls.
    fn existing_paths(
        &self,
        project: &ProjectRef,
        commit: &str,
        paths: &[PathQuery],
    ) -> impl Future<Output = Answer<BTreeMap<String, ExistingFile>>> + Send;

    /// Makes the branch with its one commit, or adopts the one an earlier attempt made.
    fn ensure_commit(&self, project: &ProjectRef, plan: &CommitPlan) -> impl Future<Output = Answer<CommitAnswer>> + Send;

    /// Opens the branch's one merge request, or adopts the one there is, whatever its state.
    fn ensure_merge_request(&self, project: &ProjectRef, plan: &MergeRequestPlan) -> impl Future<Output = Answer<MergeRequestRef>> + Send;

    /// Sets auto-merge, or merges where nothing is left to wait for; always for `head_sha` and no other head.
    fn arm_or_merge(
        &self,
        project: &ProjectRef,
        iid: u64,
        head_sha: &str,
        merge_message: &str,
    ) -> impl Future<Output = Answer<ArmAnswer>> + Send;

    /// Takes auto-merge back and re-reads: the answer is what holds now.
    fn disarm(&self, project: &ProjectRef, iid: u64) -> impl Future<Output = Answer<MrFacts>> + Send;

    /// Cancels auto-merge, closes, cancels a running pipeline, and re-reads: the answer is what holds now.
    fn withdraw(&self, project: &ProjectRef, iid: u64) -> impl Future<Output = Answer<MrFacts>> + Send;

    /// The merge request, read alone: by `iid` where known, else the one of `branch`; `None` where there is none.
    fn observe(&self, project: &ProjectRef, branch: &str, iid: Option<u64>) -> impl Future<Output = Answer<Option<MrFacts>>> + Send;

    /// Asks Git, not the merge request: is the batch's work reachable from the target branch?
    fn target_contains(&self, project: &ProjectRef, carried: &Carried) -> impl Future<Output = Answer<Containment>> + Send;

    /// Did the target branch's own last finished pipeline at or before `commit` fail?
    fn target_red(&self, project: &ProjectRef, commit: &str) -> impl Future<Output = Answer<bool>> + Send;

    /// Open merge requests whose source branch begins with `prefix`.
    fn open_with_prefix(&self, project: &ProjectRef, prefix: &str) -> impl Future<Output = Answer<Vec<OpenMergeRequest>>> + Send;

    /// Removes a branch; one that is gone already is success.
    fn delete_branch(&self, project: &ProjectRef, branch: &str) -> impl Future<Output = Answer<()>> + Send;

    /// Reads the project's settings and our own rights.
    fn preflight(&self, project: &ProjectRef) -> impl Future<Output = Answer<Preflight>> + Send;
}
