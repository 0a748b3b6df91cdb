//! Branches: the head of the target, and the removal of our own.

use super::client::Client;
use super::reply::Reply;
use super::route::{encoded, of_project};
use super::wire::Branch;
use crate::forge::{ForgeError, ProjectRef};

pub(super) async fn target_head(client: &Client, project: &ProjectRef) -> Result<String, ForgeError> {
    match read(client, project, &project.target_branch).await? {
        Some(branch) => Ok(branch.commit.id),
        None => Err(ForgeError::NotFound { what: format!("branch {} of project {}", project.target_branch, project.path) }),
    }
}

/// `None` where the project has no such branch, or does not show it yet.
pub(super) async fn read(client: &Client, project: &ProjectRef, name: &str) -> Result<Option<Branch>, ForgeError> {
    let reply = client.get("read a branch", &route_of(project, name)).await?;
    match reply.status {
        200 => reply.parse().map(Some),
        404 if reply.misses_project() => Err(unknown_project(project)),
        404 => Ok(None),
        _ => Err(reply.unexpected()),
    }
}

pub(super) async fn delete(client: &Client, project: &ProjectRef, name: &str) -> Result<(), ForgeError> {
    let reply = client.delete("delete a branch", &route_of(project, name)).await?;
    match reply.status {
        200..300 => Ok(()),
        404 if reply.misses_project() => Err(unknown_project(project)),
        404 => Ok(()),
        _ => Err(reply.unexpected()),
    }
}

pub(super) fn unknown_project(project: &ProjectRef) -> ForgeError {
    ForgeError::NotFound { what: format!("project {} (or our token may not see it)", project.path) }
}

/// The error of a 404 that is about the project or about something in it that must be there.
pub(super) fn missing(reply: &Reply, project: &ProjectRef, what: &str) -> ForgeError {
    if reply.misses_project() {
        return unknown_project(project);
    }
    ForgeError::NotFound { what: format!("{what} in project {}", project.path) }
}

fn route_of(project: &ProjectRef, name: &str) -> String {
    of_project(project, &format!("repository/branches/{}", encoded(name)))
}
