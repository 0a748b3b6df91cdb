//! Merges: a real three-way merge through `git merge-tree`, a merge commit, and the target moved only from where it was.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use time::OffsetDateTime;

use super::{
    app::App,
    knobs::take,
    merge_request::{MergeParams, MergeRequest, MrState, Person},
    repo::{NewCommit, Repo},
    webhook::Action,
};

/// What a merge left in the repository.
pub(crate) struct Landed {
    pub merge_commit: String,
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

    /// Whether the change from the merge base to `head` touches a path with `text` in it.
    pub async fn touches_path(&self, target: &str, head: &str, text: &str) -> Result<bool> {
        let names = self.run(&["diff", "--name-only", "-z", "--no-renames", &format!("{target}...{head}")]).await?;
        Ok(String::from_utf8_lossy(&names).split('\0').any(|name| name.contains(text)))
    }

    pub async fn changed_files(&self, target: &str, head: &str) -> Result<usize> {
        let names = self.run(&["diff", "--name-only", "-z", "--no-renames", &format!("{target}...{head}")]).await?;
        Ok(names.iter().filter(|byte| **byte == 0).count())
    }

    /// Whether a line added from the merge base to `head` has `text` in it.
    pub async fn adds_content(&self, target: &str, head: &str, text: &str) -> Result<bool> {
        let diff = self.run(&["diff", "--unified=0", "--no-color", "--text", &format!("{target}...{head}")]).await?;
        let diff = String::from_utf8_lossy(&diff).into_owned();
        Ok(diff.lines().any(|line| line.starts_with('+') && !line.starts_with("+++ ") && line.contains(text)))
    }
}

impl App {
    /// Merges an open merge request now. `false`: it was not open any more, or it conflicts (`merge_error` says why).
    pub async fn merge(&self, iid: u64, params: MergeParams, by: Person) -> Result<bool> {
        let (seen, takes, stuck) = {
            let _gate = self.gate.lock().await;
            let mut world = self.world();
            let takes = Duration::from_millis(world.knobs.merge_takes_ms);
            let Some(found) = world.merge_requests.get_mut(&iid).filter(|found| found.state == MrState::Opened) else {
                return Ok(false);
            };
            if params.sha.as_ref().is_some_and(|sha| *sha != found.head) {
                return Ok(false);
            }
            found.state = MrState::Locked;
            found.merge_error = None;
            let seen = found.clone();
            let stuck = take(&mut world.knobs.merges_stuck_locked);
            (seen, takes, stuck)
        };
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        let result = {
            let _gate = self.gate.lock().await;
            self.land(&seen, &params, &by).await
        };
        if stuck {
            return result.map(|_| false);
        }
        let merged = self.record(iid, result, &by)?;
        if merged && (params.remove_source || seen.remove_source) {
            let _gate = self.gate.lock().await;
            if self.repo.branch(&seen.source_branch).await?.is_some() {
                self.repo.delete_branch(&seen.source_branch).await?;
            }
        }
        self.wake.notify_one();
        Ok(merged)
    }

    /// Takes a locked merge request to what its merge came to.
    fn record(&self, iid: u64, result: Result<Option<Landed>>, by: &Person) -> Result<bool> {
        let mut world = self.world();
        let Some(found) = world.merge_requests.get_mut(&iid) else { return Ok(false) };
        found.updated_at = OffsetDateTime::now_utc();
        match result {
            Ok(Some(landed)) => {
                found.state = MrState::Merged;
                found.merged = Some((found.updated_at, by.clone()));
                found.merge_commit_sha = Some(landed.merge_commit);
                found.squash_commit_sha = landed.squash_commit;
                found.auto_merge = None;
                self.announce(&mut world, iid, Action::Merge, by);
                Ok(true)
            }
            Ok(None) => {
                found.state = MrState::Opened;
                let text = "Merge failed: There are merge conflicts. Please resolve them and try again.";
                found.merge_error = Some(text.to_owned());
                found.recheck();
                Ok(false)
            }
            Err(error) => {
                found.state = MrState::Opened;
                found.merge_error = Some("Something went wrong during merge".to_owned());
                Err(error)
            }
        }
    }

    /// Puts the change on the target branch; `None` where it conflicts. The caller holds the gate.
    pub async fn land(&self, seen: &MergeRequest, params: &MergeParams, by: &Person) -> Result<Option<Landed>> {
        let author = by.signature();
        for _try in 0..TARGET_MOVED_LIMIT {
            let target = self.repo.branch(&seen.target_branch).await?.context("the target branch is gone")?;
            let squash_commit =
                if params.squash || seen.squash { Some(self.squash(seen, params, &target).await?) } else { None };
            let source = squash_commit.as_deref().unwrap_or(&seen.head);
            let Some(tree) = self.repo.merged_tree(&target, source).await? else { return Ok(None) };
            let message = params.merge_message.clone().unwrap_or_else(|| self.default_message(seen));
            let parents = [target.as_str(), source];
            let commit =
                NewCommit { tree: &tree, parents: &parents, message: &message, author: &author, committer: &author };
            let merge_commit = self.repo.commit_tree(&commit).await?;
            let full_name = format!("refs/heads/{}", seen.target_branch);
            if self.repo.move_ref(&full_name, &merge_commit, Some(&target)).await? {
                return Ok(Some(Landed { merge_commit, squash_commit }));
            }
        }
        bail!("the branch {} moved {TARGET_MOVED_LIMIT} times during one merge", seen.target_branch)
    }

    /// One commit with the tree of the source on the merge base.
    async fn squash(&self, seen: &MergeRequest, params: &MergeParams, target: &str) -> Result<String> {
        let base =
            self.repo.merge_base(&[target, &seen.head]).await?.context("source and target have no common commit")?;
        let author = seen.author.signature();
        let message = params.squash_message.clone().unwrap_or_else(|| seen.title.clone());
        let tree = format!("{}^{{tree}}", seen.head);
        let tree = self.repo.text(&["rev-parse", "--verify", &tree]).await?;
        let commit =
            NewCommit { tree: &tree, parents: &[&base], message: &message, author: &author, committer: &author };
        self.repo.commit_tree(&commit).await
    }

    fn default_message(&self, seen: &MergeRequest) -> String {
        format!(
            "Merge branch '{}' into '{}'\n\n{}\n\nSee merge request {}!{}",
            seen.source_branch, seen.target_branch, seen.title, self.project.path, seen.iid
        )
    }
}
