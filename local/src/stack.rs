//! Everything that Muster needs, started and wired together: database, cloud, forge, and the deployed template.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::distr::{Alphanumeric, SampleString};
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::functions::FUNCTIONS;
use crate::gitlab::{Options, PipelinePlan, StandIn, Webhook};
use crate::places::{self, RunFolder};
use crate::progress::say;
use crate::{environment, migrations, mysql};

/// Name of the deployed stack; every function's name starts with it.
const STACK: &str = "muster";
/// The project of the stand-in forge.
pub const PROJECT: &str = "acme/access";
pub const PROJECT_ID: u64 = 42;
pub const TARGET_BRANCH: &str = "main";
/// Who every caller is taken for.
const DEV_PRINCIPAL: &str = "developer@localhost";
/// How long a pipeline of the stand-in takes.
const PIPELINE_TAKES: Duration = Duration::from_millis(800);

/// A running stack. Its servers end when this is dropped or its process dies.
pub struct Stack {
    pub cloud: Cloud,
    pub forge: Forge,
    /// Root of the HTTP API, without a slash at its end; holds a `$`, so quote it in a shell.
    pub api: String,
    pub database_url: String,
    /// What the template gives as its outputs.
    outputs: Value,
    database: Option<mysql::Server>,
}

/// The GitLab that requests land on.
pub struct Forge {
    pub url: String,
    token: String,
    /// `None`: a real one, or whatever GITLAB_URL names.
    stand_in: Option<(StandIn, RunFolder)>,
}

/// The servers, before anything is deployed.
struct Servers {
    cloud: Cloud,
    forge: Forge,
    database_url: String,
    database: Option<mysql::Server>,
}

impl Stack {
    /// Starts all servers and deploys the functions that `binaries` makes (a folder of `NAME/bootstrap`), both at the
    /// same time. A given DATABASE_URL, AWS_ENDPOINT_URL or GITLAB_URL is used instead of a server of our own.
    ///
    /// # Errors
    /// If any part does not start; what had started by then ends.
    pub async fn start(binaries: impl Future<Output = Result<std::path::PathBuf>>) -> Result<Self> {
        let (folder, servers) = tokio::try_join!(binaries, Servers::start())?;
        servers.deploy(&folder).await
    }

    /// The deployed name of one of [`FUNCTIONS`].
    #[must_use]
    pub fn function(&self, name: &str) -> String {
        format!("{STACK}-{name}")
    }

    /// The stand-in, with everything that a person or a test can do to it.
    ///
    /// # Errors
    /// If GITLAB_URL named another GitLab.
    pub fn stand_in(&self) -> Result<&StandIn> {
        self.forge
            .stand_in
            .as_ref()
            .map(|(stand_in, _)| stand_in)
            .context("this needs the stand-in for GitLab, whose pipelines it steers: unset GITLAB_URL (`make watch` takes it)")
    }

    /// One output of the template.
    ///
    /// # Errors
    /// If the template has no such output.
    pub fn output(&self, name: &str) -> Result<&str> {
        self.outputs[name].as_str().with_context(|| format!("template.yaml has no output {name}"))
    }

    /// The functions' log lines since the Unix time `since_ms`; a line appears only when its call has ended.
    ///
    /// # Errors
    /// If the local cloud does not answer.
    pub async fn logs(&self, since_ms: u64) -> Result<Vec<String>> {
        let names = FUNCTIONS.map(|name| self.function(name));
        let answer = self.cloud.ask("logs", &json!({ "functions": names, "since_ms": since_ms })).await?;
        let lines = answer["lines"].as_array().cloned().unwrap_or_default();
        Ok(lines
            .iter()
            .map(|line| format!("{}: {}", line["function"].as_str().unwrap_or("?"), line["text"].as_str().unwrap_or("?")))
            .collect())
    }

    /// Stops everything, and waits until it is gone.
    ///
    /// # Errors
    /// If a server could not be waited for.
    pub async fn stop(self) -> Result<()> {
        // The functions first: they use the others.
        if !self.cloud.is_ours() {
            self.cloud.ask("delete", &json!({ "stack": STACK })).await?;
        }
        self.cloud.stop().await?;
        if let Some((stand_in, _repository)) = self.forge.stand_in {
            stand_in.stop().await;
        }
        match self.database {
            Some(server) => server.stop().await,
            None => Ok(()),
        }
    }
}

impl Servers {
    async fn start() -> Result<Self> {
        let (database, cloud, forge) = tokio::try_join!(start_database(), start_cloud(), start_forge())?;
        let (database_url, database) = database;
        Ok(Self { cloud, forge, database_url, database })
    }

    async fn deploy(self, binaries: &Path) -> Result<Stack> {
        let webhook_token = secret();
        let wanted = json!({
            "stack": STACK,
            "template": places::checkout().join("template.yaml"),
            "functions": binaries,
            "parameters": {
                "Stage": "local",
                "DatabaseUrl": self.database_url,
                "GitlabUrl": self.forge.url,
                "GitlabToken": self.forge.token,
                "WebhookToken": webhook_token,
                "DevPrincipal": DEV_PRINCIPAL,
            },
        });
        let deployed = self.cloud.ask("deploy", &wanted).await.context("template.yaml cannot be deployed")?;
        let outputs = deployed["outputs"].clone();
        let id = outputs["ApiId"].as_str().context("template.yaml has no output ApiId")?;
        let api = format!("{}/_aws/execute-api/{id}/$default", self.cloud.endpoint);
        if let Some((stand_in, _)) = &self.forge.stand_in {
            stand_in.set_webhook(Some(Webhook { url: format!("{api}/webhooks/gitlab"), secret: webhook_token }));
        }
        say(format!("template.yaml deployed as the stack `{STACK}`: {} functions, API, queues, schedules", FUNCTIONS.len()));
        Ok(Stack { cloud: self.cloud, forge: self.forge, api, database_url: self.database_url, outputs, database: self.database })
    }
}

async fn start_database() -> Result<(String, Option<mysql::Server>)> {
    let (url, server) = match environment::variable("DATABASE_URL") {
        Some(url) => {
            say("database: the one that DATABASE_URL names");
            (url, None)
        }
        None => {
            let server = mysql::start(mysql::Brand::MySql).await?;
            say(format!("MySQL {} answers", server.version));
            (server.url.clone(), Some(server))
        }
    };
    let applied = migrations::apply(&url).await?;
    say(format!("schema: {} migrations applied", applied.len()));
    Ok((url, server))
}

async fn start_cloud() -> Result<Cloud> {
    let cloud = Cloud::start().await?;
    say(format!("MiniStack, the local cloud, answers on {}", cloud.endpoint));
    Ok(cloud)
}

async fn start_forge() -> Result<Forge> {
    if let Some(url) = environment::variable("GITLAB_URL") {
        let token = environment::variable("GITLAB_TOKEN")
            .context("GITLAB_URL is set but GITLAB_TOKEN is not: it takes an access token with scope api")?;
        say(format!("forge: {url}, whose webhooks do not reach this machine; the sweep asks it each minute"));
        return Ok(Forge { url, token, stand_in: None });
    }
    let token = secret();
    let folder = RunFolder::create("repository")?;
    let stand_in = StandIn::start(Options {
        repository: folder.path().join("access.git"),
        project: PROJECT.to_owned(),
        project_id: PROJECT_ID,
        target_branch: TARGET_BRANCH.to_owned(),
        token: token.clone(),
        webhook: None,
        pipeline: PipelinePlan::pass(PIPELINE_TAKES),
        bind: ([127, 0, 0, 1], 0).into(),
    })
    .await?;
    say(format!("GitLab's stand-in serves {PROJECT} on {}", stand_in.url()));
    Ok(Forge { url: stand_in.url(), token, stand_in: Some((stand_in, folder)) })
}

/// Nobody but the parts of one run knows it.
fn secret() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), 32)
}
