//! The one merge request of a branch: found, opened, read.
//!
//! Lists are cached for hours on GitLab's side: they find a merge request, and the single read decides.

use serde_json::json;

use super::GitLab;
use super::branches;
use super::client::Client;
use super::reply::Reply;
use super::route::{of_project, with_query};
use super::wire::{MergeRequest, User};
use crate::forge::{ForgeError, MergeRequestPlan, MergeRequestRef, MrFacts, MrState, OpenMergeRequest, ProjectRef};

/// Pages of 100 open merge requests that we look through.
const MOST_PAGES: usize = 50;

/// An existing one is adopted whatever its state: a second one for the branch could merge what the first one lost.
pub(super) async fn ensure(client: &Client, project: &ProjectRef, plan: &MergeRequestPlan) -> Result<MergeRequestRef, ForgeError> {
    if let Some(found) = find(client, project, &plan.branch).await? {
        return Ok(reference(found));
    }
    let body = json!({
        "source_branch": plan.branch,
        "target_branch": project.target_branch,
        "title": plan.title,
        "description": plan.description,
        "remove_source_branch": false,
        "squash": false,
    });
    let reply = client.post("open a merge request", &of_project(project, "merge_requests"), &body).await?;
    match reply.status {
        200..300 => reply.parse().map(reference),
        400 if reply.text().contains("source_branch does not exist") => {
            Err(ForgeError::Busy { detail: format!("branch {} is not visible yet", plan.branch) })
        }
        404 => Err(branches::missing(&reply, project, "merge requests")),
        409 => adopt(client, project, plan, &reply).await,
        _ => Err(reply.unexpected()),
    }
}

/// "Another open merge request already exists for this source branch: !7"
async fn adopt(client: &Client, project: &ProjectRef, plan: &MergeRequestPlan, reply: &Reply) -> Result<MergeRequestRef, ForgeError> {
    let Some(iid) = named_iid(&reply.text()) else {
        return match find(client, project, &plan.branch).await? {
            Some(found) => Ok(reference(found)),
            None => Err(ForgeError::Busy { detail: reply.text() }),
        };
    };
    match read(client, project, iid).await? {
        Some(found) if is_ours(&found, &plan.branch) => Ok(reference(found)),
        Some(found) => Err(ForgeError::Unexpected {
            call: reply.call,
            status: reply.status,
            detail: format!("!{iid} is named for our branch and is of branch {}", found.source_branch),
        }),
        None => Err(ForgeError::Busy { detail: format!("!{iid} exists and is not shown yet") }),
    }
}

fn named_iid(text: &str) -> Option<u64> {
    let digits: String = text.rsplit_once('!')?.1.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

pub(super) async fn observe(gitlab: &GitLab, project: &ProjectRef, branch: &str, iid: Option<u64>) -> Result<Option<MrFacts>, ForgeError> {
    let iid = match iid {
        Some(iid) => iid,
        None => match find(&gitlab.client, project, branch).await? {
            Some(found) => found.iid,
            None => return Ok(None),
        },
    };
    match read(&gitlab.client, project, iid).await? {
        Some(found) => gitlab.facts(found).await.map(Some),
        None => Ok(None),
    }
}

impl GitLab {
    pub(super) async fn must_read(&self, project: &ProjectRef, iid: u64) -> Result<MergeRequest, ForgeError> {
        let missing = || ForgeError::NotFound { what: format!("merge request !{iid} in project {}", project.path) };
        read(&self.client, project, iid).await?.ok_or_else(missing)
    }

    /// The merge request as it is now; one that must exist.
    pub(super) async fn facts_of(&self, project: &ProjectRef, iid: u64) -> Result<MrFacts, ForgeError> {
        self.facts(self.must_read(project, iid).await?).await
    }

    pub(super) async fn facts(&self, found: MergeRequest) -> Result<MrFacts, ForgeError> {
        let by_us = match &found.closed_by {
            Some(user) if found.state() == MrState::Closed => user.id == self.our_user().await?,
            _ => false,
        };
        Ok(found.into_facts(by_us))
    }

    async fn our_user(&self) -> Result<u64, ForgeError> {
        let ask = async || {
            let reply = self.client.get("read our user", "user").await?;
            let user: User = if reply.is_success() { reply.parse()? } else { return Err(reply.unexpected()) };
            Ok(user.id)
        };
        self.our_user.get_or_try_init(ask).await.copied()
    }
}

/// `None` where the project has no merge request of this number, or does not show it yet.
pub(super) async fn read(client: &Client, project: &ProjectRef, iid: u64) -> Result<Option<MergeRequest>, ForgeError> {
    let reply = client.get("read a merge request", &of_project(project, &format!("merge_requests/{iid}"))).await?;
    match reply.status {
        200 => reply.parse().map(Some),
        404 if reply.misses_project() => Err(branches::unknown_project(project)),
        404 => Ok(None),
        _ => Err(reply.unexpected()),
    }
}

/// The newest of the branch. One that a person pointed at another target still is the branch's merge request; it comes
/// second to one with our target.
async fn find(client: &Client, project: &ProjectRef, branch: &str) -> Result<Option<MergeRequest>, ForgeError> {
    let query = [("source_branch", branch), ("state", "all"), ("order_by", "created_at"), ("sort", "desc"), ("per_page", "100")];
    let reply = client.get("list merge requests", &with_query(&of_project(project, "merge_requests"), &query)).await?;
    let found: Vec<MergeRequest> = match reply.status {
        200 => reply.parse()?,
        404 => return Err(branches::missing(&reply, project, "merge requests")),
        _ => return Err(reply.unexpected()),
    };
    let ours = found.into_iter().filter(|found| is_ours(found, branch));
    Ok(ours.max_by_key(|found| (found.target_branch == project.target_branch, found.iid)))
}

fn is_ours(found: &MergeRequest, branch: &str) -> bool {
    found.source_branch == branch && found.is_of_this_project()
}

fn reference(found: MergeRequest) -> MergeRequestRef {
    MergeRequestRef { iid: found.iid, url: found.web_url }
}

pub(super) async fn open_with_prefix(client: &Client, project: &ProjectRef, prefix: &str) -> Result<Vec<OpenMergeRequest>, ForgeError> {
    let base = of_project(project, "merge_requests");
    let mut route = with_query(&base, &[("state", "opened"), ("order_by", "created_at"), ("sort", "asc"), ("per_page", "100")]);
    let mut open = Vec::new();
    for _ in 0..MOST_PAGES {
        let reply = client.get("list open merge requests", &route).await?;
        let page: Vec<MergeRequest> = match reply.status {
            200 => reply.parse()?,
            404 => return Err(branches::missing(&reply, project, "merge requests")),
            _ => return Err(reply.unexpected()),
        };
        let ours = page.into_iter().filter(|found| found.source_branch.starts_with(prefix) && found.is_of_this_project());
        open.extend(ours.map(|found| OpenMergeRequest { iid: found.iid, branch: found.source_branch, url: found.web_url }));
        let Some(next) = reply.next_page else { return Ok(open) };
        route = format!("{base}?{next}");
    }
    tracing::warn!(project = project.path, pages = MOST_PAGES, "more open merge requests than we look through; newer ones were not seen");
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::named_iid;

    #[test]
    fn the_number_of_the_other_merge_request_is_read_from_the_text() {
        assert_eq!(named_iid("Another open merge request already exists for this source branch: !17"), Some(17));
        assert_eq!(named_iid("exists: !17."), Some(17));
        assert_eq!(named_iid("exists"), None);
        assert_eq!(named_iid("exists!"), None);
    }
}
