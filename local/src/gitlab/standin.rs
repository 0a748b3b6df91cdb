//! Starting and stopping the stand-in, and the same control in process that the admin API gives over HTTP.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    net::TcpListener,
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    app::{App, Project},
    connection::{Connection, CuttableListener},
    faults::Fault,
    knobs::Knobs,
    merge_request::{MergeParams, Person},
    pipeline::{PipelinePlan, Status},
    repo::{ENVIRONMENT, FOREIGN, Repo},
    routes, routes_close,
    scenario::Scenario,
    webhook::{Delivery, Webhook},
    world::{MrView, World},
};

/// What a stand-in is started with.
pub struct Options {
    /// Bare repository; created with one commit on `target_branch` if absent.
    pub repository: PathBuf,
    /// `group/name`
    pub project: String,
    pub project_id: u64,
    pub target_branch: String,
    /// Taken as `PRIVATE-TOKEN` and as `Authorization: Bearer`.
    pub token: String,
    pub webhook: Option<Webhook>,
    pub pipeline: PipelinePlan,
    /// A loopback address; port 0 lets the system choose.
    pub bind: SocketAddr,
}

/// A running stand-in. Dropping it stops it too, without waiting.
pub struct StandIn {
    app: Arc<App>,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
    tasks: Vec<JoinHandle<()>>,
}

/// How long `stop` waits for calls in flight.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

impl StandIn {
    /// Opens or creates the repository and serves it. Fails if `git` is missing or too old, or the address is taken.
    pub async fn start(options: Options) -> Result<Self> {
        if !options.bind.ip().is_loopback() {
            bail!("the GitLab stand-in has no locks on its doors: bind it to a loopback address, not {}", options.bind);
        }
        let owner = Person::named("administrator").signature();
        let repo = Repo::open_or_create(&options.repository, &options.target_branch, &owner).await?;
        repo.require_merge_tree().await?;
        let world = World { last_iid: repo.last_iid().await?, plan: options.pipeline, webhook: options.webhook, ..World::default() };
        let listener =
            TcpListener::bind(options.bind).await.with_context(|| format!("the GitLab stand-in cannot listen on {}", options.bind))?;
        let address = listener.local_addr()?;
        let (outgoing, queue) = mpsc::unbounded_channel();
        let project = Project { id: options.project_id, path: options.project, target_branch: options.target_branch };
        let app = Arc::new(App {
            project,
            token: options.token,
            repo,
            gate: tokio::sync::Mutex::default(),
            world: Mutex::new(world),
            wake: Notify::new(),
            outgoing,
            client: reqwest::Client::builder().no_proxy().build().context("no HTTP client for webhooks")?,
            url: format!("http://{address}"),
        });
        let tasks = vec![tokio::spawn(Arc::clone(&app).run_clock()), tokio::spawn(Arc::clone(&app).run_webhooks(queue))];
        let (stop, stopped) = oneshot::channel::<()>();
        let service = routes::router(Arc::clone(&app)).into_make_service_with_connect_info::<Connection>();
        let server = axum::serve(CuttableListener(listener), service).with_graceful_shutdown(async move {
            // A dropped sender means stop as well.
            let _sent_or_dropped = stopped.await;
        });
        let server = tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the GitLab stand-in stopped serving");
            }
        });
        Ok(Self { app, stop: Some(stop), server: Some(server), tasks })
    }

    /// `http://127.0.0.1:PORT`, without a slash at its end
    pub fn url(&self) -> String {
        self.app.url.clone()
    }

    pub fn repository(&self) -> &Path {
        self.app.repo.path()
    }

    pub fn set_webhook(&self, webhook: Option<Webhook>) {
        self.app.world().webhook = webhook;
    }

    /// What pipelines started from now on do.
    pub fn set_pipeline(&self, plan: PipelinePlan) {
        self.app.world().plan = plan;
    }

    /// Changes how the forge behaves as a whole.
    pub fn set_knobs(&self, change: impl FnOnce(&mut Knobs)) {
        change(&mut self.app.world().knobs);
        self.app.wake.notify_one();
    }

    /// Sets what holds from now on; what people do then happens in the background.
    ///
    /// # Errors
    /// If a knob does not exist, or a share is none.
    pub fn play(&mut self, scenario: Scenario) -> Result<()> {
        let people = self.app.set_stage(scenario)?;
        self.tasks.push(tokio::spawn(Arc::clone(&self.app).play(people, self.app.client.clone())));
        Ok(())
    }

    pub fn inject(&self, fault: Fault) {
        self.app.world().faults.push(fault);
    }

    pub fn clear_faults(&self) {
        self.app.world().faults.clear();
    }

    pub fn merge_requests(&self) -> Vec<MrView> {
        let world = self.app.world();
        world.merge_requests.values().map(|found| world.view(found)).collect()
    }

    pub fn deliveries(&self) -> Vec<Delivery> {
        self.app.world().deliveries.clone()
    }

    /// Method, path and status (0: the connection was cut) of each API call, in the order they were answered.
    pub fn calls(&self) -> Vec<(String, String, u16)> {
        self.app.world().calls.clone()
    }

    /// How many calls had this method and this text in their path, both as sent and percent-decoded.
    pub fn count_calls(&self, method: &str, path: &str) -> usize {
        let wanted = |call: &&(String, String, u16)| {
            let decoded = percent_encoding::percent_decode_str(&call.1).decode_utf8_lossy();
            call.0 == method && (call.1.contains(path) || decoded.contains(path))
        };
        self.app.world().calls.iter().filter(wanted).count()
    }

    pub fn clear_calls(&self) {
        self.app.world().calls.clear();
    }

    /// A person closes a merge request.
    pub async fn close_as(&self, iid: u64, person: &str) -> Result<()> {
        let closed = routes_close::close(&self.app, iid, &Person::named(person)).await;
        closed.map_err(|error| anyhow::anyhow!("close was refused: {}", error.body))
    }

    /// A person reopens a closed merge request.
    pub async fn reopen_as(&self, iid: u64, person: &str) -> Result<()> {
        let reopened = routes_close::reopen(&self.app, iid, &Person::named(person)).await;
        reopened.map_err(|error| anyhow::anyhow!("reopen was refused: {}", error.body))
    }

    /// A person merges, whatever the pipeline says. `false`: not open, or it conflicts.
    pub async fn merge_as(&self, iid: u64, person: &str) -> Result<bool> {
        self.app.merge(iid, MergeParams::default(), Person::named(person)).await
    }

    /// A person pushes one commit to a branch (made from the target branch if absent); `None` deletes a file.
    /// Answers the commit's id.
    pub async fn push_as(&self, person: &str, branch: &str, files: &[(&str, Option<&str>)], message: &str) -> Result<String> {
        let changes: BTreeMap<String, Option<Vec<u8>>> =
            files.iter().map(|(path, content)| ((*path).to_owned(), content.map(|content| content.as_bytes().to_vec()))).collect();
        self.app.push(branch, changes, message, &Person::named(person)).await
    }

    /// Adds a pipeline of a branch at its present head; answers its id.
    pub async fn add_branch_pipeline(&self, branch: &str, status: Status) -> Result<u64> {
        self.app.add_branch_pipeline(branch, status).await
    }

    /// Ends a pipeline now, whatever its plan says.
    pub fn end_pipeline(&self, id: u64, status: Status) {
        self.app.enter(&mut self.app.world(), id, status);
    }

    /// Runs `git` in the bare repository and answers its output without the last line end.
    pub fn git(&self, args: &[&str]) -> Result<String> {
        let mut command = std::process::Command::new("git");
        command.arg("--git-dir").arg(self.app.repo.path()).args(args).envs(ENVIRONMENT.iter().copied());
        for name in FOREIGN {
            command.env_remove(name);
        }
        let output = command.output().context("`git` could not be started")?;
        if !output.status.success() {
            bail!("git {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
    }

    /// Stops serving; calls in flight get half a second.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(mut server) = self.server.take()
            && tokio::time::timeout(STOP_PATIENCE, &mut server).await.is_err()
        {
            server.abort();
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
