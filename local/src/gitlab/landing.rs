//! Putting a change on the target branch: a real three-way merge through `git merge-tree`, a merge commit, and the
//! target moved only from where it was.

use anyhow::{Context, Result, bail};

use super::{
    app::App,
    merge_request::{MergeParams, MergeRequest, Person},
    repo::{NewCommit, Repo},
    settings::MergeMethod,
};

/// What a merge left in the repository.
pub(crate) struct Landed {
    /// `None` after a fast-forward.
    pub merge_commit: Option<String>,
    pub squash_commit: Option<String>,
}

/// Pushes straight to the target may get in between; after so many of them a merge gives up.
const TARGET_MOVED_LIMIT: u32 = 10;

impl Repo {
    /// The tree of a merge of two commits; `None` where they conflict.
    pub async fn merged_tree(&self, ours: &str, theirs: &str) -> Result<Option<String>> {
        let output = self.attempt(&["merge-tree", "--write-tree", "--no-messages", ours, theirs], b"", &[]).await?;
        match output.status.code() {
            Some(0) => {
                let text = String::from_utf8_lossy(&output.stdout);
                Ok(Some(text.lines().next().context("git merge-tree wrote no tree")?.to_owned()))
            }
            Some(1) => Ok(None),
            _ => bail!("git merge-tree failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
        }
    }

    /// Paths that differ between the merge base and `head`.
    pub async fn changed_paths(&self, target: &str, head: &str) -> Result<Vec<String>> {
        let names = self.run(&["diff", "--name-only", "-z", "--no-renames", &format!("{target}...{head}")]).await?;
        Ok(String::from_utf8_lossy(&names).split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Whether a line added from the merge base to `head` has `text` in it.
    pub async fn adds_content(&self, target: &str, head: &str, text: &str) -> Result<bool> {
        let diff = self.run(&["diff", "--unified=0", "--no-color", "--text", &format!("{target}...{head}")]).await?;
        let diff = String::from_utf8_lossy(&diff).into_owned();
        Ok(diff.lines().any(|line| line.starts_with('+') && !line.starts_with("+++ ") && line.contains(text)))
    }
}

impl App {
    /// Puts the change on the target branch; `None` where it conflicts or would need a rebase. The caller holds the gate.
    pub async fn land(&self, seen: &MergeRequest, params: &MergeParams, by: &Person) -> Result<Option<Landed>> {
        let author = by.signature();
        let (squashes, method) = {
            let world = self.world();
            (world.knobs.project.squashes(params.squash || seen.squash), world.knobs.project.merge_method)
        };
        for _try in 0..TARGET_MOVED_LIMIT {
            let target = self.repo.branch(&seen.target_branch).await?.context("the target branch is gone")?;
            if method != MergeMethod::Merge && !self.repo.is_ancestor(&target, &seen.head).await? {
                return Ok(None);
            }
            let squash_commit = if squashes { Some(self.squash(seen, params, &target).await?) } else { None };
            let source = squash_commit.as_deref().unwrap_or(&seen.head);
            let merge_commit = if method == MergeMethod::Ff {
                None
            } else {
                let Some(tree) = self.repo.merged_tree(&target, source).await? else { return Ok(None) };
                let message = params.merge_message.clone().unwrap_or_else(|| self.default_message(seen));
                let parents = [target.as_str(), source];
                let commit = NewCommit { tree: &tree, parents: &parents, message: &message, author: &author, committer: &author };
                Some(self.repo.commit_tree(&commit).await?)
            };
            let new_head = merge_commit.as_deref().unwrap_or(source);
            if self.repo.move_ref(&format!("refs/heads/{}", seen.target_branch), new_head, Some(&target)).await? {
                return Ok(Some(Landed { merge_commit, squash_commit }));
            }
        }
        bail!("the branch {} moved {TARGET_MOVED_LIMIT} times during one merge", seen.target_branch)
    }

    /// One commit with the tree of the source on the merge base.
    async fn squash(&self, seen: &MergeRequest, params: &MergeParams, target: &str) -> Result<String> {
        let base = self.repo.merge_base(&[target, &seen.head]).await?.context("source and target have no common commit")?;
        let author = seen.author.signature();
        let message = params.squash_message.clone().unwrap_or_else(|| seen.title.clone());
        let tree = self.repo.text(&["rev-parse", "--verify", &format!("{}^{{tree}}", seen.head)]).await?;
        let commit = NewCommit { tree: &tree, parents: &[&base], message: &message, author: &author, committer: &author };
        self.repo.commit_tree(&commit).await
    }

    fn default_message(&self, seen: &MergeRequest) -> String {
        format!(
            "Merge branch '{}' into '{}'\n\n{}\n\nSee merge request {}!{}",
            seen.source_branch, seen.target_branch, seen.title, self.project.path, seen.iid
        )
    }
}
