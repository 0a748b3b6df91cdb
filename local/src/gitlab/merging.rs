//! The course of a merge: locked while it runs, merged or open again when it ends.

use std::time::Duration;

use anyhow::Result;
use time::OffsetDateTime;

use super::{
    app::App,
    knobs::take,
    landing::Landed,
    merge_request::{MergeParams, MergeRequest, MrState, Person},
    webhook::Action,
    world::World,
};

impl App {
    /// Merges an open merge request now. `false`: it was not open any more, or it conflicts (`merge_error` says why).
    pub async fn merge(&self, iid: u64, params: MergeParams, by: Person) -> Result<bool> {
        self.merge_if(iid, params, by, |_, _| true).await
    }

    /// Merges as it was armed, if it still is and is mergeable: a cancel that was answered has won.
    pub async fn merge_armed(&self, iid: u64, params: MergeParams) -> Result<bool> {
        let ready = |world: &World, found: &MergeRequest| found.auto_merge.is_some() && world.detailed_status(found) == "mergeable";
        self.merge_if(iid, params, Person::bot(), ready).await
    }

    async fn merge_if(&self, iid: u64, params: MergeParams, by: Person, ready: impl Fn(&World, &MergeRequest) -> bool) -> Result<bool> {
        let (seen, takes, stuck) = {
            let _gate = self.gate.lock().await;
            let mut world = self.world();
            let takes = Duration::from_millis(world.knobs.merge_takes_ms);
            if !world.merge_requests.get(&iid).is_some_and(|found| ready(&world, found)) {
                return Ok(false);
            }
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
                found.merge_commit_sha = landed.merge_commit;
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
}
