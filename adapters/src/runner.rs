//! What the functions that perform effects are made of.

use std::time::Duration;

use shared::{Store, StoreOptions};

use crate::config::RunnerConfig;
use crate::forge::gitlab::{GitLab, GitLabOptions};
use crate::outbound::Cloud;
use crate::queue::Queue;
use crate::relay::Relay;

/// The relay of `claim-round`, `settle`, `sweep` and `ops`.
pub type Runner = Relay<GitLab, Cloud>;

/// Builds a runner; nothing is connected yet.
///
/// # Errors
/// A sentence naming the setting that is wrong.
pub fn runner(config: &RunnerConfig) -> Result<Runner, String> {
    let store = Store::new(StoreOptions::new(config.database_url.expose()))?;
    let options = GitLabOptions {
        base_url: config.gitlab_url.clone(),
        token: config.gitlab_token.expose().to_owned(),
        connect_timeout: Duration::from_secs(3),
        call_timeout: Duration::from_secs(15),
    };
    let forge = GitLab::new(options).map_err(|why| format!("GITLAB_URL or GITLAB_TOKEN is not usable: {why}"))?;
    let outbound = Cloud::new(Queue::connect(&config.events_queue_url), &config.claim_round_function);
    Ok(Relay { store, forge, outbound })
}
