//! What people and operators do to a merge request, beside closing and merging it.

use anyhow::Result;
use time::OffsetDateTime;

use super::{
    app::App,
    errors::{ApiError, ApiResult},
    merge_request::{MrState, Person},
    webhook::Action,
};

impl App {
    /// An operator frees a merge request that is stuck locked: merged if it landed, open again if not. No webhook tells of it.
    pub(crate) async fn unstick(&self, iid: u64, by: &Person) -> Result<()> {
        let _gate = self.gate.lock().await;
        let stuck = self.world().merge_requests.get(&iid).filter(|found| found.state == MrState::Locked).cloned();
        let Some(stuck) = stuck else { return Ok(()) };
        let target = format!("refs/heads/{}", stuck.target_branch);
        let has_landed = self.repo.is_ancestor(&stuck.head, &target).await?;
        let target_head = self.repo.text(&["rev-parse", &target]).await?;
        if let Some(found) = self.world().merge_requests.get_mut(&iid) {
            found.updated_at = OffsetDateTime::now_utc();
            if has_landed {
                found.state = MrState::Merged;
                found.merged = Some((found.updated_at, by.clone()));
                found.merge_commit_sha = Some(target_head);
            } else {
                found.state = MrState::Opened;
            }
        }
        Ok(())
    }

    /// A person gives a merge request another title or another target branch.
    pub(crate) fn edit(&self, iid: u64, retargets: bool, to: String, by: &Person) -> ApiResult<()> {
        let mut world = self.world();
        let found = world.merge_requests.get_mut(&iid).ok_or_else(|| ApiError::not_found(""))?;
        found.updated_at = OffsetDateTime::now_utc();
        if retargets {
            found.target_branch = to;
            found.auto_merge = None;
            found.recheck();
        } else {
            found.title = to;
        }
        self.announce(&mut world, iid, Action::Update, by);
        Ok(())
    }
}
