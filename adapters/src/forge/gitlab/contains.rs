//! Is the work on the target branch? Asked of Git, because a merge request's state has been seen to be wrong for ever.

use std::collections::BTreeMap;

use super::branches;
use super::client::Client;
use super::files::existing_paths;
use super::route::{of_project, with_query};
use super::trailer::carries;
use super::wire::Commit;
use crate::forge::{Carried, Containment, ForgeError, PathQuery, ProjectRef};

/// Pages of 100 commits of the target branch that we look through for our trailer.
const MOST_PAGES: usize = 50;

/// The known commits first, each by one call; only then the target's commits since the start, for one that a rebase
/// or a person made.
pub(super) async fn target_contains(client: &Client, project: &ProjectRef, carried: &Carried) -> Result<Containment, ForgeError> {
    let mut other = None;
    let mut asked: Vec<&str> = Vec::new();
    for id in carried.commits.iter().filter(|id| !id.is_empty()) {
        if asked.contains(&id.as_str()) {
            continue;
        }
        asked.push(id);
        if let Some(commit) = reachable(client, project, id).await?
            && carries(&commit.message, &carried.token_hex)
        {
            match judged(client, project, carried, commit).await? {
                yes @ Containment::Yes { .. } => return Ok(yes),
                found => other = other.or(Some(found)),
            }
        }
    }
    if let Some(other) = other {
        return Ok(other);
    }
    search(client, project, carried).await
}

/// The commit, where it is an ancestor of the target's head: then it is its own merge base with it.
async fn reachable(client: &Client, project: &ProjectRef, id: &str) -> Result<Option<Commit>, ForgeError> {
    let query = [("refs[]", id), ("refs[]", project.target_branch.as_str())];
    let reply = client.get("find a merge base", &with_query(&of_project(project, "repository/merge_base"), &query)).await?;
    match reply.status {
        200 => {
            let base: Commit = reply.parse()?;
            Ok((base.id == id).then_some(base))
        }
        404 if reply.misses_project() => Err(branches::unknown_project(project)),
        // No common ancestor.
        404 => Ok(None),
        400 if reply.text().contains("Could not find ref") => {
            // Of the two, only our commit may be missing: without its target branch nothing can be said.
            if branches::read(client, project, &project.target_branch).await?.is_none() {
                return Err(ForgeError::NotFound { what: format!("branch {} of project {}", project.target_branch, project.path) });
            }
            Ok(None)
        }
        _ => Err(reply.unexpected()),
    }
}

async fn search(client: &Client, project: &ProjectRef, carried: &Carried) -> Result<Containment, ForgeError> {
    let base = of_project(project, "repository/commits");
    let range = format!("{}..{}", carried.start_sha, project.target_branch);
    let mut route = with_query(&base, &[("ref_name", &range), ("per_page", "100")]);
    let mut other = None;
    for _ in 0..MOST_PAGES {
        let reply = client.get("list commits", &route).await?;
        let page: Vec<Commit> = match reply.status {
            200 => reply.parse()?,
            404 => return Err(branches::missing(&reply, project, &format!("commits {range}"))),
            _ => return Err(reply.unexpected()),
        };
        for commit in page.into_iter().filter(|commit| carries(&commit.message, &carried.token_hex)) {
            match judged(client, project, carried, commit).await? {
                yes @ Containment::Yes { .. } => return Ok(yes),
                found => other = other.or(Some(found)),
            }
        }
        let Some(next) = reply.next_page else { return Ok(other.unwrap_or(Containment::No)) };
        route = format!("{base}?{next}");
    }
    Err(ForgeError::Unexpected {
        call: "list commits",
        status: 200,
        detail: format!("{range} has more commits than we look through; whether the batch is among them is unknown"),
    })
}

async fn judged(client: &Client, project: &ProjectRef, carried: &Carried, commit: Commit) -> Result<Containment, ForgeError> {
    let paths = differing_paths(client, project, &commit.id, &carried.blobs).await?;
    Ok(if paths.is_empty() { Containment::Yes { commit: commit.id } } else { Containment::OtherContent { commit: commit.id, paths } })
}

/// Paths whose blob at the commit is not the expected one (`None`: absent).
pub(super) async fn differing_paths(
    client: &Client,
    project: &ProjectRef,
    commit: &str,
    expected: &BTreeMap<String, Option<String>>,
) -> Result<Vec<String>, ForgeError> {
    let queries: Vec<PathQuery> = expected.keys().map(|path| PathQuery { path: path.clone(), hash: false }).collect();
    let found = existing_paths(client, project, commit, &queries).await?;
    let differs = |(path, wanted): &(&String, &Option<String>)| found.get(*path).map(|file| &file.blob_id) != wanted.as_ref();
    Ok(expected.iter().filter(differs).map(|(path, _)| path.clone()).collect())
}
