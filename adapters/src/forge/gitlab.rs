//! GitLab, over its REST v4 and GraphQL APIs.
//!
//! Only this module and its children know a status code, a field name or an error text of GitLab's.
//! What a text means is decided where the text is read; a value that this version does not know means wait.

mod address;
mod branches;
mod circuit;
mod client;
mod commits;
mod contains;
mod files;
mod hooks;
mod merge;
mod merge_requests;
mod pipelines;
mod preflight;
mod probe;
mod rate_limit;
mod refusal;
mod reply;
mod route;
mod trailer;
mod wire;
mod withdraw;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use super::{
    ArmAnswer, Carried, CommitAnswer, CommitPlan, Containment, ExistingFile, Forge, ForgeError, MergeRequestPlan, MergeRequestRef, MrFacts,
    OpenMergeRequest, PathQuery, Preflight, ProjectRef,
};
pub use address::BadGitLabOptions;
use client::Client;
pub use probe::{CallProbe, Moment};

/// Where GitLab is and how long we wait for it.
pub struct GitLabOptions {
    /// Such as `https://gitlab.example.com`, with the path GitLab is served under if it has one.
    pub base_url: String,
    /// A personal, group or project access token with scope `api`.
    pub token: String,
    pub connect_timeout: Duration,
    /// Limit of one whole call, its body included.
    pub call_timeout: Duration,
}

/// A GitLab that holds our projects. Cheap calls share one pool of connections.
pub struct GitLab {
    client: Client,
    /// Id of the user that our token belongs to, asked once.
    our_user: OnceCell<u64>,
}

impl GitLab {
    /// Makes no call: a function starts while GitLab is down.
    ///
    /// # Errors
    /// The base URL is not an `http` or `https` URL, or the token cannot stand in a header.
    pub fn new(options: GitLabOptions) -> Result<Self, BadGitLabOptions> {
        Ok(Self { client: Client::new(options)?, our_user: OnceCell::new() })
    }

    /// The same, watched call by call.
    #[must_use]
    pub fn probed(mut self, probe: Arc<dyn CallProbe>) -> Self {
        self.client.probe = Some(probe);
        self
    }

    /// How many calls were sent to GitLab so far, lost ones included.
    pub fn calls(&self) -> u64 {
        self.client.calls()
    }
}

impl fmt::Debug for GitLab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitLab").field("base", &self.client.base()).field("calls", &self.calls()).finish_non_exhaustive()
    }
}

impl Forge for GitLab {
    async fn target_head(&self, project: &ProjectRef) -> Result<String, ForgeError> {
        branches::target_head(&self.client, project).await
    }

    async fn existing_paths(
        &self,
        project: &ProjectRef,
        commit: &str,
        paths: &[PathQuery],
    ) -> Result<BTreeMap<String, ExistingFile>, ForgeError> {
        files::existing_paths(&self.client, project, commit, paths).await
    }

    async fn ensure_commit(&self, project: &ProjectRef, plan: &CommitPlan) -> Result<CommitAnswer, ForgeError> {
        commits::ensure(&self.client, project, plan).await
    }

    async fn ensure_merge_request(&self, project: &ProjectRef, plan: &MergeRequestPlan) -> Result<MergeRequestRef, ForgeError> {
        merge_requests::ensure(&self.client, project, plan).await
    }

    async fn arm_or_merge(&self, project: &ProjectRef, iid: u64, head_sha: &str, merge_message: &str) -> Result<ArmAnswer, ForgeError> {
        merge::arm_or_merge(self, project, iid, head_sha, merge_message).await
    }

    async fn disarm(&self, project: &ProjectRef, iid: u64) -> Result<MrFacts, ForgeError> {
        withdraw::disarm(self, project, iid).await
    }

    async fn withdraw(&self, project: &ProjectRef, iid: u64) -> Result<MrFacts, ForgeError> {
        withdraw::withdraw(self, project, iid).await
    }

    async fn observe(&self, project: &ProjectRef, branch: &str, iid: Option<u64>) -> Result<Option<MrFacts>, ForgeError> {
        merge_requests::observe(self, project, branch, iid).await
    }

    async fn target_contains(&self, project: &ProjectRef, carried: &Carried) -> Result<Containment, ForgeError> {
        contains::target_contains(&self.client, project, carried).await
    }

    async fn target_red(&self, project: &ProjectRef, commit: &str) -> Result<bool, ForgeError> {
        pipelines::target_red(&self.client, project, commit).await
    }

    async fn open_with_prefix(&self, project: &ProjectRef, prefix: &str) -> Result<Vec<OpenMergeRequest>, ForgeError> {
        merge_requests::open_with_prefix(&self.client, project, prefix).await
    }

    async fn delete_branch(&self, project: &ProjectRef, branch: &str) -> Result<(), ForgeError> {
        branches::delete(&self.client, project, branch).await
    }

    async fn preflight(&self, project: &ProjectRef) -> Result<Preflight, ForgeError> {
        preflight::preflight(&self.client, project).await
    }
}
