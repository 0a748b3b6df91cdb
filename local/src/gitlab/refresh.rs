//! Bringing a merge request up to date with its branches: pushes, deletions, merges made elsewhere, the next check.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use time::OffsetDateTime;

use super::{
    app::App,
    merge_request::{Check, MergeRequest, MrState, Person},
    pipeline::{Pipeline, PipelinePlan, RunsOn, Status},
    settings::MergeMethod,
    webhook::Action,
};

impl App {
    /// Looks at the branches of an open merge request and takes its check one step on, if `by_read` or if the step's
    /// time is up. The caller holds the gate.
    pub async fn refresh(&self, iid: u64, by_read: bool) -> Result<()> {
        match self.open_merge_request(iid) {
            Some(seen) => self.refresh_against(seen, &self.repo.branches().await?, by_read).await,
            None => Ok(()),
        }
    }

    /// The same for all open merge requests, as far as their time is up. The caller holds the gate.
    pub async fn refresh_all(&self) -> Result<()> {
        let heads = self.repo.branches().await?;
        let open: Vec<u64> = self.world().merge_requests.keys().copied().collect();
        for iid in open {
            if let Some(seen) = self.open_merge_request(iid) {
                self.refresh_against(seen, &heads, false).await?;
            }
        }
        Ok(())
    }

    async fn refresh_against(&self, seen: MergeRequest, heads: &BTreeMap<String, String>, by_read: bool) -> Result<()> {
        let iid = seen.iid;
        let source = heads.get(&seen.source_branch).cloned();
        let target = heads.get(&seen.target_branch).unwrap_or(&seen.target_head).clone();
        let moved = source.as_ref().filter(|head| **head != seen.head);
        if let Some(head) = moved {
            self.pushed(&seen, head).await?;
        }
        let head = source.clone().unwrap_or_else(|| seen.head.clone());
        if target != seen.target_head && self.landed(&seen, &head, &target).await? {
            return Ok(());
        }
        {
            let mut world = self.world();
            let keeps_armed = world.knobs.project.merge_method == MergeMethod::Merge;
            let Some(found) = world.merge_requests.get_mut(&iid) else { return Ok(()) };
            found.source_missing = source.is_none();
            if found.target_head != target && !keeps_armed {
                found.auto_merge = None;
            }
            found.target_head.clone_from(&target);
            if matches!(&found.check, Check::Done { target: against, .. } if *against != target) {
                found.recheck();
            }
        }
        self.step_check(iid, &head, &target, by_read).await?;
        self.start_pipeline_if_due(iid).await
    }

    fn open_merge_request(&self, iid: u64) -> Option<MergeRequest> {
        self.world().merge_requests.get(&iid).filter(|found| found.state == MrState::Opened).cloned()
    }

    /// A push to the source branch: new head, new pipeline, auto-merge cancelled.
    async fn pushed(&self, seen: &MergeRequest, head: &str) -> Result<()> {
        self.repo.force_ref(&format!("refs/merge-requests/{}/head", seen.iid), head).await?;
        let mut world = self.world();
        let appears = Duration::from_millis(world.knobs.pipeline_appears_ms);
        let open = world.merge_requests.get_mut(&seen.iid).filter(|found| found.state == MrState::Opened);
        if let Some(found) = open {
            head.clone_into(&mut found.head);
            found.auto_merge = None;
            found.updated_at = OffsetDateTime::now_utc();
            found.recheck();
            if found.check != Check::Preparing {
                found.pipeline_due = Some(Instant::now() + appears);
            }
        }
        self.announce(&mut world, seen.iid, Action::Push { old: seen.head.clone() }, &Person::named("someone"));
        Ok(())
    }

    /// A merge request whose commits reached the target by another way (a merge pushed by hand) counts as merged.
    async fn landed(&self, seen: &MergeRequest, head: &str, target: &str) -> Result<bool> {
        let was_there = self.repo.is_ancestor(head, &seen.target_head).await?;
        if was_there || !self.repo.is_ancestor(head, target).await? {
            return Ok(false);
        }
        let mut world = self.world();
        let by = Person::named("someone");
        // A close that came meanwhile has won: only open merge requests are marked.
        let open = world.merge_requests.get_mut(&seen.iid).filter(|found| found.state == MrState::Opened);
        let Some(found) = open else { return Ok(true) };
        found.state = MrState::Merged;
        found.merged = Some((OffsetDateTime::now_utc(), by.clone()));
        found.merge_commit_sha = Some(target.to_owned());
        found.auto_merge = None;
        target.clone_into(&mut found.target_head);
        self.announce(&mut world, seen.iid, Action::Merge, &by);
        Ok(true)
    }

    async fn step_check(&self, iid: u64, head: &str, target: &str, by_read: bool) -> Result<()> {
        let (check, due) = {
            let world = self.world();
            let step = Duration::from_millis(world.knobs.check_step_ms);
            let Some(found) = world.merge_requests.get(&iid) else { return Ok(()) };
            (found.check.clone(), by_read || found.check_at + step <= Instant::now())
        };
        if !due {
            return Ok(());
        }
        let next = match check {
            Check::Preparing => Check::Unchecked,
            Check::Unchecked => Check::Checking,
            Check::Checking => {
                let conflict = self.repo.merged_tree(target, head).await?.is_none();
                let behind = !self.repo.is_ancestor(target, head).await?;
                Check::Done { target: target.to_owned(), conflict, behind }
            }
            Check::Done { .. } => return Ok(()),
        };
        let diff = if matches!(next, Check::Done { .. }) { Some(self.diff(target, head).await?) } else { None };
        let mut world = self.world();
        let appears = Duration::from_millis(world.knobs.pipeline_appears_ms);
        if let Some(found) = world.merge_requests.get_mut(&iid) {
            if let Some((base, changed)) = diff {
                found.base = base;
                found.changed_files = Some(changed);
            }
            if found.check == Check::Preparing {
                found.prepared_at = Some(OffsetDateTime::now_utc());
                found.pipeline_due = Some(Instant::now() + appears);
            }
            found.check = next;
            found.check_at = Instant::now();
        }
        self.wake.notify_one();
        Ok(())
    }

    /// Merge base, and the number of files that differ from it.
    async fn diff(&self, target: &str, head: &str) -> Result<(Option<String>, usize)> {
        let base = self.repo.merge_base(&[target, head]).await?;
        Ok((base, self.repo.changed_paths(target, head).await?.len()))
    }

    async fn start_pipeline_if_due(&self, iid: u64) -> Result<()> {
        let due = self.open_merge_request(iid).filter(|found| found.pipeline_due.is_some_and(|at| at <= Instant::now()));
        if let Some(seen) = due {
            self.start_pipeline(&seen).await?;
        }
        Ok(())
    }

    /// Starts a pipeline for the head of a merge request as the plan says; `None`: the plan makes none.
    pub async fn start_pipeline(&self, seen: &MergeRequest) -> Result<Option<u64>> {
        let plan = {
            let mut world = self.world();
            if let Some(found) = world.merge_requests.get_mut(&seen.iid) {
                found.pipeline_due = None;
            }
            world.plan.clone()
        };
        let is_planned_skip = plan == PipelinePlan::Skip;
        let verdict = match plan {
            PipelinePlan::None => return Ok(None),
            PipelinePlan::Hang | PipelinePlan::Skip => None,
            PipelinePlan::Pass { after } => Some((Status::Success, after)),
            PipelinePlan::Fail { after } => Some((Status::Failed, after)),
            PipelinePlan::FailIfPath { substring, after } => Some((
                verdict(self.repo.changed_paths(&seen.target_head, &seen.head).await?.iter().any(|path| path.contains(&substring))),
                after,
            )),
            PipelinePlan::FailIfContent { substring, after } => {
                Some((verdict(self.repo.adds_content(&seen.target_head, &seen.head, &substring).await?), after))
            }
        };
        let message = self.repo.text(&["log", "-1", "--format=%B", &seen.head]).await?.to_lowercase();
        let skipped = is_planned_skip || message.contains("[skip ci]") || message.contains("[ci skip]");
        let mut world = self.world();
        let id = world.next_pipeline_id();
        let mut pipeline = Pipeline::new(id, RunsOn::MergeRequest(seen.iid), seen.head.clone(), verdict);
        if skipped {
            pipeline.enter(Status::Skipped);
        }
        world.pipelines.insert(id, pipeline);
        self.announce_pipeline(&mut world, id);
        self.wake.notify_one();
        Ok(Some(id))
    }

    /// A pipeline of a branch, at its present head and in a given status. It stays so.
    pub async fn add_branch_pipeline(&self, branch: &str, status: Status) -> Result<u64> {
        let Some(head) = self.repo.branch(branch).await? else { anyhow::bail!("there is no branch {branch}") };
        let mut world = self.world();
        let id = world.next_pipeline_id();
        let mut pipeline = Pipeline::new(id, RunsOn::Branch(branch.to_owned()), head, None);
        pipeline.enter(status);
        world.pipelines.insert(id, pipeline);
        self.announce_pipeline(&mut world, id);
        Ok(id)
    }

    /// Takes each pipeline whose time has come to its next status.
    pub fn step_pipelines(&self) {
        let mut world = self.world();
        let now = Instant::now();
        let due: Vec<(u64, Status)> = world
            .pipelines
            .values()
            .filter_map(|pipeline| pipeline.next().filter(|(at, _)| *at <= now).map(|(_, status)| (pipeline.id, status)))
            .collect();
        for (id, status) in due {
            self.enter(&mut world, id, status);
        }
    }
}

fn verdict(bad: bool) -> Status {
    if bad { Status::Failed } else { Status::Success }
}
