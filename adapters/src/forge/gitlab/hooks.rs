//! Does GitLab still tell us? It disables a webhook that failed often, and says so only here.

use serde::Deserialize;

use super::client::Client;
use super::route::{of_project, with_query};
use crate::forge::{ForgeError, ProjectRef};

/// How the address of our receiver ends, wherever it is.
const RECEIVER: &str = "/webhooks/gitlab";
const EXECUTABLE: &str = "executable";

#[derive(Debug, Deserialize)]
struct Hook {
    url: String,
    /// Older versions do not tell.
    #[serde(default)]
    alert_status: Option<String>,
    #[serde(default)]
    disabled_until: Option<String>,
    #[serde(default)]
    merge_requests_events: bool,
    #[serde(default)]
    pipeline_events: bool,
}

/// What is wrong with our webhooks, one sentence each. A project without any is in order: the sweep needs none.
pub(super) async fn problems(client: &Client, project: &ProjectRef) -> Result<Vec<String>, ForgeError> {
    let route = with_query(&of_project(project, "hooks"), &[("per_page", "100")]);
    let reply = match client.get("list webhooks", &route).await {
        Ok(reply) if reply.is_success() => reply,
        // They are shown to maintainers only, which our user need not be.
        Ok(_) | Err(ForgeError::Unauthorized { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let hooks: Vec<Hook> = reply.parse()?;
    Ok(hooks.iter().filter(|hook| address(hook).ends_with(RECEIVER)).flat_map(of_hook).collect())
}

/// Without what may be a secret in it.
fn address(hook: &Hook) -> &str {
    hook.url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/')
}

fn of_hook(hook: &Hook) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(status) = hook.alert_status.as_deref().filter(|status| *status != EXECUTABLE) {
        let until = hook.disabled_until.as_ref().map_or_else(String::new, |until| format!(" until {until}"));
        problems.push(format!(
            "GitLab has disabled our webhook ({status}{until}) because its deliveries failed, so only the sweep notices what happens; look at its \
             recent events in GitLab, mend what they name, and send a test, which enables it again."
        ));
    }
    for (is_sent, what) in [(hook.merge_requests_events, "merge request"), (hook.pipeline_events, "pipeline")] {
        if !is_sent {
            problems.push(format!("Our webhook is not sent {what} events, so only the sweep notices them; tick them in GitLab."));
        }
    }
    problems
}
