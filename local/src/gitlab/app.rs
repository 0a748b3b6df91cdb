//! The parts every route works with, and the clock that moves merge requests and pipelines on by themselves.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, mpsc};

use super::{
    merge_request::{Check, MrState},
    repo::Repo,
    webhook::Outgoing,
    world::World,
};

pub(crate) struct Project {
    pub id: u64,
    /// `group/name`
    pub path: String,
    pub target_branch: String,
}

pub(crate) struct App {
    pub project: Project,
    pub token: String,
    pub repo: Repo,
    /// Held while refs are read and moved as one step. Never held while waiting for a caller or a timer.
    pub gate: tokio::sync::Mutex<()>,
    pub world: Mutex<World>,
    pub wake: Notify,
    pub outgoing: mpsc::UnboundedSender<Outgoing>,
    /// For webhooks, and for what people of a scenario do.
    pub client: reqwest::Client,
    /// `http://127.0.0.1:PORT`
    pub url: String,
}

impl App {
    /// What is remembered. The lock is for a few lines at a time and never held across an await.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn web_url(&self) -> String {
        format!("{}/{}", self.url(), self.project.path)
    }

    /// Moves everything on whose time has come; runs until the stand-in stops.
    pub async fn run_clock(self: Arc<Self>) {
        loop {
            let pause = self.next_step().saturating_duration_since(Instant::now());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wake.notified() => {}
            }
            if let Err(error) = self.tick().await {
                tracing::error!(error = format!("{error:#}"), "the GitLab stand-in could not move on; trying again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// The earliest moment at which something moves by itself.
    fn next_step(&self) -> Instant {
        let world = self.world();
        let step = Duration::from_millis(world.knobs.check_step_ms);
        let open = || world.merge_requests.values().filter(|found| found.state == MrState::Opened);
        let checks = open().filter(|found| !matches!(found.check, Check::Done { .. })).map(|found| found.check_at + step);
        let pipelines = open().filter_map(|found| found.pipeline_due);
        let steps = world.pipelines.values().filter_map(|pipeline| pipeline.next().map(|(at, _)| at));
        checks.chain(pipelines).chain(steps).min().unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600))
    }

    async fn tick(self: &Arc<Self>) -> anyhow::Result<()> {
        {
            let _gate = self.gate.lock().await;
            self.refresh_all().await?;
        }
        self.step_pipelines();
        let armed: Vec<u64> = {
            let world = self.world();
            world.merge_requests.values().filter(|found| found.auto_merge.is_some()).map(|found| found.iid).collect()
        };
        for iid in armed {
            // A merge that takes its time must not stop the clock of the others.
            let app = Arc::clone(self);
            tokio::spawn(async move {
                if let Err(error) = app.merge_if_armed(iid).await {
                    tracing::error!(iid, error = format!("{error:#}"), "an armed merge failed");
                }
            });
        }
        Ok(())
    }

    /// Performs an armed merge whose pipeline has passed.
    async fn merge_if_armed(&self, iid: u64) -> anyhow::Result<()> {
        let ready = {
            let world = self.world();
            world.merge_requests.get(&iid).and_then(|found| {
                let ready = found.state == MrState::Opened && world.detailed_status(found) == "mergeable";
                found.auto_merge.clone().filter(|_| ready)
            })
        };
        if let Some(params) = ready {
            self.merge_armed(iid, params).await?;
        }
        Ok(())
    }
}
