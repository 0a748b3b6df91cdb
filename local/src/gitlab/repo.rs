//! The bare Git repository behind the stand-in, driven by the real `git` binary through plumbing.
//!
//! Nothing here keeps a second copy of the truth: each answer is read from the repository, so a push made
//! straight into it with `git` is seen like any other.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use anyhow::{Context, Result, bail};
use tokio::{io::AsyncWriteExt, process::Command};

/// Who wrote a commit, as Git records it.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub name: String,
    pub email: String,
}

/// A commit to be made from a finished tree.
pub(crate) struct NewCommit<'a> {
    pub tree: &'a str,
    pub parents: &'a [&'a str],
    pub message: &'a str,
    pub author: &'a Signature,
    pub committer: &'a Signature,
}

pub(crate) struct Repo {
    path: PathBuf,
}

/// The environment every `git` runs in: nothing of the machine's own configuration may change an answer.
pub(super) const ENVIRONMENT: &[(&str, &str)] =
    &[("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_TERMINAL_PROMPT", "0"), ("LC_ALL", "C")];

/// Variables that would redirect `git` to another repository or index if we are started from a Git hook.
pub(super) const FOREIGN: &[&str] = &["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_QUARANTINE_PATH"];

impl Repo {
    /// Opens the bare repository at `path`; creates it, with one first commit on `branch`, if it is absent.
    pub async fn open_or_create(path: &Path, branch: &str, owner: &Signature) -> Result<Self> {
        let absolute =
            std::path::absolute(path).with_context(|| format!("the repository path {} cannot be made absolute", path.display()))?;
        let repo = Self { path: absolute };
        if !repo.path.join("HEAD").exists() {
            tokio::fs::create_dir_all(&repo.path)
                .await
                .with_context(|| format!("the folder {} for the repository cannot be made", repo.path.display()))?;
            // No template: its sample hooks are not ours, and a hook of the machine must not run.
            repo.run(&["init", "--bare", "--quiet", "--template=", "--initial-branch", branch, "."]).await?;
        }
        if repo.branch(branch).await?.is_none() {
            let readme = repo.write_blobs(&[b"# Access\n\nOne file for each access in force.\n".to_vec()]).await?;
            let tree = BTreeMap::from([(b"README.md".to_vec(), super::tree::Entry::file(readme[0].clone()))]);
            let tree = repo.write_tree(None, &[], &tree).await?;
            let commit = NewCommit { tree: &tree, parents: &[], message: "Initial commit\n", author: owner, committer: owner };
            let first = repo.commit_tree(&commit).await?;
            if !repo.move_ref(&format!("refs/heads/{branch}"), &first, None).await? {
                bail!("the branch {branch} appeared in {} while it was being created", repo.path.display());
            }
        }
        Ok(repo)
    }

    /// Fails on a `git` that cannot merge without a work tree.
    pub async fn require_merge_tree(&self) -> Result<()> {
        let head = "HEAD";
        let output = self.attempt(&["merge-tree", "--write-tree", "--no-messages", head, head], b"", &[]).await?;
        if !output.status.success() {
            let version = self.text(&["--version"]).await.unwrap_or_default();
            bail!("this git ({version}) cannot do `git merge-tree --write-tree`: install Git 2.38 or later");
        }
        Ok(())
    }

    /// The highest number of a merge request that a former stand-in opened in this repository.
    pub async fn last_iid(&self) -> Result<u64> {
        let list = self.text(&["for-each-ref", "--format=%(refname:lstrip=2)", "refs/merge-requests"]).await?;
        let numbers = list.lines().filter_map(|name| name.split('/').next()?.parse().ok());
        Ok(numbers.max().unwrap_or(0))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `git` and answers whatever it answers, feeding it `stdin`.
    pub async fn attempt(&self, args: &[&str], stdin: &[u8], environment: &[(&str, &str)]) -> Result<Output> {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(&self.path).args(args).current_dir(&self.path);
        for name in FOREIGN {
            command.env_remove(name);
        }
        command.envs(ENVIRONMENT.iter().copied()).envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("`git` could not be started: install Git 2.38 or later")?;
        let mut input = child.stdin.take().context("git was started without an input")?;
        let feed = async move {
            // A git that has seen enough closes its input early: its exit code tells, not this write.
            let _closed_early = input.write_all(stdin).await;
            drop(input);
        };
        let ((), output) = tokio::join!(feed, child.wait_with_output());
        output.with_context(|| format!("git {} did not end", args.join(" ")))
    }

    /// Runs `git` and answers its output; a non-zero exit is an error carrying what git said.
    pub async fn run(&self, args: &[&str]) -> Result<Vec<u8>> {
        self.feed(args, b"", &[]).await
    }

    pub async fn feed(&self, args: &[&str], stdin: &[u8], environment: &[(&str, &str)]) -> Result<Vec<u8>> {
        let output = self.attempt(args, stdin, environment).await?;
        if !output.status.success() {
            bail!("git {} failed ({}): {}", args.join(" "), output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output.stdout)
    }

    pub async fn text(&self, args: &[&str]) -> Result<String> {
        let output = self.run(args).await?;
        Ok(String::from_utf8_lossy(&output).trim_end_matches('\n').to_owned())
    }

    /// The commit a revision names (branch, tag, full or short id), or `None`.
    pub async fn commit_of(&self, revision: &str) -> Result<Option<String>> {
        let revision = format!("{revision}^{{commit}}");
        let output = self.attempt(&["rev-parse", "--verify", "--quiet", "--end-of-options", &revision], b"", &[]).await?;
        Ok(first_line(&output))
    }

    pub async fn branch(&self, name: &str) -> Result<Option<String>> {
        let full = format!("refs/heads/{name}");
        let output = self.attempt(&["rev-parse", "--verify", "--quiet", "--end-of-options", &full], b"", &[]).await?;
        Ok(first_line(&output))
    }

    /// Names and heads of all branches, sorted by name.
    pub async fn branches(&self) -> Result<BTreeMap<String, String>> {
        let list = self.text(&["for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads"]).await?;
        Ok(list.lines().filter_map(|line| line.split_once(' ')).map(|(id, name)| (name.to_owned(), id.to_owned())).collect())
    }

    pub async fn is_valid_branch_name(&self, name: &str) -> Result<bool> {
        Ok(self.attempt(&["check-ref-format", "--branch", name], b"", &[]).await?.status.success())
    }

    /// Moves a ref from `old` (`None`: it must not exist) to `new`. `false`: somebody else moved it first.
    pub async fn move_ref(&self, full_name: &str, new: &str, old: Option<&str>) -> Result<bool> {
        let old = old.unwrap_or(NO_COMMIT);
        Ok(self.attempt(&["update-ref", full_name, new, old], b"", &[]).await?.status.success())
    }

    /// Points a ref at `new`, whatever it pointed at before.
    pub async fn force_ref(&self, full_name: &str, new: &str) -> Result<()> {
        self.run(&["update-ref", full_name, new]).await.map(drop)
    }

    pub async fn delete_branch(&self, name: &str) -> Result<()> {
        self.run(&["update-ref", "-d", &format!("refs/heads/{name}")]).await.map(drop)
    }

    pub async fn is_ancestor(&self, ancestor: &str, of: &str) -> Result<bool> {
        let output = self.attempt(&["merge-base", "--is-ancestor", ancestor, of], b"", &[]).await?;
        Ok(output.status.success())
    }

    pub async fn merge_base(&self, commits: &[&str]) -> Result<Option<String>> {
        let args: Vec<&str> = ["merge-base"].iter().chain(commits).copied().collect();
        Ok(first_line(&self.attempt(&args, b"", &[]).await?))
    }

    pub async fn commit_tree(&self, commit: &NewCommit<'_>) -> Result<String> {
        let mut args = vec!["commit-tree", commit.tree];
        for parent in commit.parents {
            args.extend(["-p", parent]);
        }
        args.extend(["-F", "-"]);
        let environment = [
            ("GIT_AUTHOR_NAME", commit.author.name.as_str()),
            ("GIT_AUTHOR_EMAIL", &commit.author.email),
            ("GIT_COMMITTER_NAME", &commit.committer.name),
            ("GIT_COMMITTER_EMAIL", &commit.committer.email),
        ];
        let id = self.feed(&args, commit.message.as_bytes(), &environment).await?;
        Ok(String::from_utf8_lossy(&id).trim().to_owned())
    }
}

/// The id Git uses for "no commit" when a ref must not exist yet.
const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

fn first_line(output: &Output) -> Option<String> {
    if !output.status.success() {
        return None;
    }
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}
