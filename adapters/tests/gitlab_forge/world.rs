//! A stand-in with an adapter that talks to it, and the sentences the tests are written in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use adapters::forge::gitlab::{GitLab, GitLabOptions};
use adapters::forge::{ArmAnswer, Carried, CommitAnswer, CommitPlan, FileAction, Forge, ForgeError, MergeRequestPlan, MrFacts, ProjectRef};
use local::gitlab::{Options, PipelinePlan, StandIn};
use tempfile::TempDir;

pub const TOKEN: &str = "glpat-never-shown-anywhere";
/// A claim token, and the branch it names.
pub const BATCH: &str = "0123456789abcdef0123456789abcdef";
pub const BRANCH: &str = "muster/default/0123456789abcdef0123456789abcdef";

pub struct World {
    pub standin: StandIn,
    pub gitlab: GitLab,
    pub project: ProjectRef,
    _folder: TempDir,
}

impl World {
    pub async fn new() -> Self {
        Self::with(PipelinePlan::pass(Duration::from_millis(50))).await
    }

    pub async fn with(pipeline: PipelinePlan) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let standin = StandIn::start(Options {
            repository: folder.path().join("access.git"),
            project: "acme/access".to_owned(),
            project_id: 42,
            target_branch: "main".to_owned(),
            token: TOKEN.to_owned(),
            webhook: None,
            pipeline,
            bind: ([127, 0, 0, 1], 0).into(),
        })
        .await
        .unwrap();
        standin.set_knobs(|knobs| {
            knobs.check_step_ms = 5;
            knobs.pipeline_appears_ms = 5;
            knobs.project.sha_required = true;
        });
        let gitlab = adapter(&standin.url(), TOKEN);
        let project = ProjectRef { path: "acme/access".to_owned(), id: None, target_branch: "main".to_owned() };
        Self { standin, gitlab, project, _folder: folder }
    }

    pub async fn head(&self) -> String {
        self.gitlab.target_head(&self.project).await.unwrap()
    }

    /// What one batch would commit: one file, from the target's head as it is now.
    pub async fn plan(&self) -> CommitPlan {
        plan_of(&self.head().await, vec![create("roles/ann.json", "{\"role\":\"admin\"}\n")])
    }

    pub async fn commit(&self, plan: &CommitPlan) -> Result<CommitAnswer, ForgeError> {
        self.gitlab.ensure_commit(&self.project, plan).await
    }

    /// Commits and answers the head.
    pub async fn committed(&self, plan: &CommitPlan) -> String {
        match self.commit(plan).await.unwrap() {
            CommitAnswer::Committed { head_sha } => head_sha,
            other => panic!("not committed: {other:?}"),
        }
    }

    pub fn merge_request_plan(&self, head_sha: &str) -> MergeRequestPlan {
        MergeRequestPlan {
            branch: BRANCH.to_owned(),
            head_sha: head_sha.to_owned(),
            title: "Grant 1 access".to_owned(),
            description: "One request.".to_owned(),
        }
    }

    pub async fn open(&self, head_sha: &str) -> u64 {
        let plan = self.merge_request_plan(head_sha);
        self.gitlab.ensure_merge_request(&self.project, &plan).await.unwrap().iid
    }

    /// A commit with its open merge request: head and number.
    pub async fn proposed(&self) -> (String, u64) {
        let head = self.committed(&self.plan().await).await;
        let iid = self.open(&head).await;
        (head, iid)
    }

    /// A proposed change that auto-merge is set for.
    pub async fn armed(&self) -> (String, u64) {
        let (head, iid) = self.proposed().await;
        assert_eq!(self.arm_until(iid, &head, |answer| !is_waiting(answer)).await, ArmAnswer::Armed);
        (head, iid)
    }

    pub async fn arm(&self, iid: u64, head_sha: &str) -> Result<ArmAnswer, ForgeError> {
        self.gitlab.arm_or_merge(&self.project, iid, head_sha, &merge_message()).await
    }

    /// Asks again, as the relay does, until the answer is one that the test waits for.
    pub async fn arm_until(&self, iid: u64, head_sha: &str, wanted: impl Fn(&ArmAnswer) -> bool) -> ArmAnswer {
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = self.arm(iid, head_sha).await.unwrap();
            if wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < patience, "still {answer:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn facts(&self, iid: u64) -> MrFacts {
        self.gitlab.observe(&self.project, BRANCH, Some(iid)).await.unwrap().unwrap()
    }

    pub async fn facts_until(&self, iid: u64, wanted: impl Fn(&MrFacts) -> bool) -> MrFacts {
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let facts = self.facts(iid).await;
            if wanted(&facts) {
                return facts;
            }
            assert!(Instant::now() < patience, "still {facts:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What the plan would leave on the target, under these commits.
    pub fn carried(&self, plan: &CommitPlan, commits: &[&str]) -> Carried {
        let blob = |action: &FileAction| match action {
            FileAction::Create { path, content } | FileAction::Update { path, content } => (path.clone(), Some(self.blob_id(content))),
            FileAction::Delete { path } => (path.clone(), None),
        };
        Carried {
            token_hex: plan.token_hex.clone(),
            start_sha: plan.start_sha.clone(),
            commits: commits.iter().map(|id| (*id).to_owned()).collect(),
            blobs: plan.actions.iter().map(blob).collect::<BTreeMap<_, _>>(),
        }
    }

    /// Git's own word for the content's id.
    pub fn blob_id(&self, content: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        self.standin.git(&["hash-object", "--no-filters", file.path().to_str().unwrap()]).unwrap()
    }

    /// A change to the merge request that the adapter has no verb for.
    pub async fn edit(&self, iid: u64, change: serde_json::Value) {
        let url = format!("{}/api/v4/projects/42/merge_requests/{iid}", self.standin.url());
        let call = reqwest::Client::new().put(url).header("private-token", TOKEN).json(&change);
        assert!(call.send().await.unwrap().status().is_success());
    }

    /// A person's commit on a branch, which is made from the target where it does not exist.
    pub async fn push(&self, branch: &str, files: &[(&str, Option<&str>)], message: &str) -> String {
        self.standin.push_as("alice", branch, files, message).await.unwrap()
    }
}

pub fn adapter(url: &str, token: &str) -> GitLab {
    GitLab::new(GitLabOptions {
        base_url: url.to_owned(),
        token: token.to_owned(),
        connect_timeout: Duration::from_secs(3),
        call_timeout: Duration::from_secs(15),
    })
    .unwrap()
}

pub fn plan_of(start_sha: &str, actions: Vec<FileAction>) -> CommitPlan {
    CommitPlan {
        branch: BRANCH.to_owned(),
        start_sha: start_sha.to_owned(),
        message: format!("Grant access\n\nMuster-Batch: {BATCH}\n"),
        token_hex: BATCH.to_owned(),
        actions,
    }
}

pub fn create(path: &str, content: &str) -> FileAction {
    FileAction::Create { path: path.to_owned(), content: content.to_owned() }
}

pub fn update(path: &str, content: &str) -> FileAction {
    FileAction::Update { path: path.to_owned(), content: content.to_owned() }
}

pub fn delete(path: &str) -> FileAction {
    FileAction::Delete { path: path.to_owned() }
}

pub fn merge_message() -> String {
    format!("Merge 1 access\n\nMuster-Batch: {BATCH}\n")
}

pub fn is_waiting(answer: &ArmAnswer) -> bool {
    matches!(answer, ArmAnswer::NotYet { .. })
}
