//! Pipelines: of the target branch, and of a merge request that was withdrawn.

use serde_json::json;

use super::branches;
use super::client::Client;
use super::route::{of_project, with_query};
use super::wire::Pipeline;
use crate::forge::{ForgeError, ProjectRef};

/// The newest pipelines of the target branch, newest first. Looked through from the one at `commit`; where that is not
/// among them, from the newest. The first that passed or failed decides; where none did, the target is not red.
pub(super) async fn target_red(client: &Client, project: &ProjectRef, commit: &str) -> Result<bool, ForgeError> {
    let query = [("ref", project.target_branch.as_str()), ("order_by", "id"), ("sort", "desc"), ("per_page", "20")];
    let reply = client.get("list pipelines", &with_query(&of_project(project, "pipelines"), &query)).await?;
    match reply.status {
        200 => Ok(is_red(&reply.parse::<Vec<Pipeline>>()?, commit)),
        404 => Err(branches::missing(&reply, project, "pipelines")),
        _ => Err(reply.unexpected()),
    }
}

fn is_red(newest_first: &[Pipeline], commit: &str) -> bool {
    let from = newest_first.iter().position(|pipeline| pipeline.sha == commit).unwrap_or(0);
    let finished = newest_first[from..].iter().find(|pipeline| matches!(pipeline.status.as_str(), "success" | "failed"));
    finished.is_some_and(|pipeline| pipeline.status == "failed")
}

/// Saves the forge's runners; nothing depends on it, so what goes wrong is only told.
pub(super) async fn cancel(client: &Client, project: &ProjectRef, id: u64) {
    let route = of_project(project, &format!("pipelines/{id}/cancel"));
    let outcome = match client.post("cancel a pipeline", &route, &json!({})).await {
        Ok(reply) if reply.is_success() => return,
        Ok(reply) => reply.unexpected(),
        Err(error) => error,
    };
    tracing::warn!(error = %outcome, pipeline = id, "the pipeline of a withdrawn merge request was not cancelled; it runs to its end");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(pipelines: &[(&str, &str)]) -> Vec<Pipeline> {
        let of = |(at, (sha, status)): (usize, &(&str, &str))| Pipeline {
            id: 100 - at as u64,
            sha: (*sha).to_owned(),
            status: (*status).to_owned(),
            web_url: None,
        };
        pipelines.iter().enumerate().map(of).collect()
    }

    #[test]
    fn the_last_finished_pipeline_at_or_before_the_commit_decides() {
        let pipelines = listed(&[("c3", "failed"), ("c2", "running"), ("c1", "canceled"), ("c0", "success")]);
        assert!(is_red(&pipelines, "c3"));
        assert!(!is_red(&pipelines, "c2"));
        assert!(is_red(&pipelines, "not listed"));
        assert!(is_red(&listed(&[("c2", "running"), ("c1", "failed"), ("c0", "success")]), "c2"));
    }

    #[test]
    fn a_target_without_a_finished_pipeline_is_not_red() {
        assert!(!is_red(&[], "c"));
        assert!(!is_red(&listed(&[("c", "running"), ("b", "skipped")]), "c"));
    }
}
