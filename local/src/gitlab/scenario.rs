//! A file that tells the stand-in how to behave, and what people do meanwhile.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{app::App, chaos::Chaos, faults::Fault, pipeline::PipelinePlan};

/// All parts are optional. What is not named stays as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Some fields of [`Knobs`](super::Knobs).
    pub knobs: Map<String, Value>,
    pub pipeline: Option<PipelinePlan>,
    pub chaos: Option<Chaos>,
    pub faults: Vec<Fault>,
    /// In their order, each when its time has come.
    pub people: Vec<Step>,
}

/// What somebody does, once a merge request is as awaited and some time has passed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    #[serde(default)]
    pub when: Option<When>,
    #[serde(default)]
    pub after_ms: u64,
    /// A call of the admin API, such as `POST merge_requests/1/close`.
    pub call: String,
    #[serde(default)]
    pub body: Value,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// The iid of a merge request.
    pub merge_request: u64,
    pub state: Option<String>,
    pub detailed_merge_status: Option<String>,
    /// Auto-merge is set.
    pub armed: Option<bool>,
}

const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Scenario {
    /// # Errors
    /// If the file is not there or is no scenario; the message names the place.
    pub fn read(path: &std::path::Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the scenario {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a scenario", path.display()))
    }
}

impl App {
    /// Sets everything that holds from the start, and answers what people will do.
    pub(crate) fn set_stage(&self, scenario: Scenario) -> Result<Vec<Step>> {
        let mut world = self.world();
        if let Some(chaos) = scenario.chaos {
            chaos.check().map_err(anyhow::Error::msg)?;
            world.chaos = chaos;
        }
        world.change_knobs(scenario.knobs)?;
        if let Some(plan) = scenario.pipeline {
            world.plan = plan;
        }
        world.faults.extend(scenario.faults);
        self.wake.notify_one();
        Ok(scenario.people)
    }

    /// Plays the people's part to its end.
    pub(crate) async fn play(self: Arc<Self>, steps: Vec<Step>, client: reqwest::Client) {
        for step in steps {
            if let Err(error) = self.act_out(&step, &client).await {
                tracing::error!(call = step.call, error = format!("{error:#}"), "a step of the scenario failed; the next one follows");
            }
        }
    }

    async fn act_out(&self, step: &Step, client: &reqwest::Client) -> Result<()> {
        if let Some(when) = &step.when {
            while !self.is_so(when) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(step.after_ms)).await;
        let Some((method, path)) = step.call.split_once(' ') else {
            bail!("a call is a method and a path, such as POST merge_requests/1/close")
        };
        let method: reqwest::Method = method.parse()?;
        let url = format!("{}/_standin/{}", self.url(), path.trim_start_matches('/'));
        let mut asked = client.request(method, url);
        if !step.body.is_null() {
            asked = asked.json(&step.body);
        }
        let answer = asked.send().await?;
        let status = answer.status();
        ensure!(status.is_success(), "it was answered {status}: {}", answer.text().await.unwrap_or_default());
        Ok(())
    }

    fn is_so(&self, when: &When) -> bool {
        let world = self.world();
        let Some(found) = world.merge_requests.get(&when.merge_request) else { return false };
        let is = |wanted: &Option<String>, there: &str| wanted.as_deref().is_none_or(|wanted| wanted == there);
        is(&when.state, found.state.name())
            && is(&when.detailed_merge_status, world.detailed_status(found))
            && when.armed.is_none_or(|armed| armed == found.auto_merge.is_some())
    }
}
