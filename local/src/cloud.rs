//! The local cloud: MiniStack, which runs the functions' own binaries, queues, schedules and the HTTP API.

use std::path::PathBuf;
use std::process::{Command as Plain, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::places::{self, RunFolder, free_port};
use crate::supervised::Supervised;
use crate::{environment, tools};

const REGION: &str = "eu-west-1";
const START_LIMIT: Duration = Duration::from_secs(60);
const PORT_TRIES: usize = 3;
/// A function may run for a minute, and a call that takes longer has been answered by a time-out.
const INVOKE_LIMIT: Duration = Duration::from_secs(90);

/// A running local cloud. One that we started is empty at first, and ends when this is dropped or its process dies.
#[derive(Debug)]
pub struct Cloud {
    /// `http://127.0.0.1:PORT`
    pub endpoint: String,
    http: reqwest::Client,
    python: PathBuf,
    /// `None`: somebody else runs it.
    server: Option<(Supervised, RunFolder)>,
}

impl Cloud {
    /// Installs MiniStack if needed and starts it on a free port of 127.0.0.1; a given AWS_ENDPOINT_URL is used instead.
    ///
    /// # Errors
    /// If it cannot be installed or does not answer: the message ends with its log.
    pub async fn start() -> Result<Self> {
        let programs =
            tokio::task::spawn_blocking(|| tools::ensure(&["stack"])).await.context("installing MiniStack was interrupted")??;
        let python = programs.join("python");
        let http = reqwest::Client::builder().no_proxy().timeout(INVOKE_LIMIT).build().context("the HTTP client cannot be built")?;
        if let Some(endpoint) = environment::variable("AWS_ENDPOINT_URL") {
            return Ok(Self { endpoint, http, python, server: None });
        }
        for _ in 0..PORT_TRIES {
            if let Some(cloud) = Self::start_on_free_port(&python, &http).await? {
                return Ok(cloud);
            }
        }
        bail!("other programs took the port of MiniStack {PORT_TRIES} times in a row: try again on a quieter machine")
    }

    async fn start_on_free_port(python: &PathBuf, http: &reqwest::Client) -> Result<Option<Self>> {
        let folder = RunFolder::create("ministack")?;
        let scratch = folder.path().join("tmp");
        std::fs::create_dir(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
        let port = free_port().await?;
        let endpoint = format!("http://127.0.0.1:{port}");
        let mut command = Plain::new("env");
        // Its environment reaches every function: it starts with nothing of ours.
        command.arg("-i").args(aws_environment(&endpoint).map(|(name, value)| format!("{name}={value}"))).args([
            format!("GATEWAY_PORT={port}"),
            format!("TMPDIR={}", scratch.display()),
            format!("STATE_DIR={}", folder.path().join("state").display()),
            format!("S3_DATA_DIR={}", folder.path().join("s3").display()),
            format!("MINISTACK_REGION={REGION}"),
            // Every listener on loopback only; the servers that we do not use, off.
            "BIND_HOST=127.0.0.1".to_owned(),
            "IOT_MTLS_ENABLED=0".to_owned(),
            "SFTP_ENABLED=0".to_owned(),
            "LOG_LEVEL=WARNING".to_owned(),
            "PYTHONDONTWRITEBYTECODE=1".to_owned(),
        ]);
        command.arg(python).arg(places::checkout().join("local/python/launcher.py"));
        let mut server = Supervised::start(&command, folder.path(), &scratch)?;
        let until = Instant::now() + START_LIMIT;
        let health = format!("{endpoint}/_ministack/health");
        while !http.get(&health).send().await.is_ok_and(|answer| answer.status().is_success()) {
            if let Some(status) = server.exited()? {
                if server.log().contains("in use") {
                    return Ok(None);
                }
                bail!("MiniStack ended while starting ({status}). Its log:\n{}", server.log());
            }
            if Instant::now() > until {
                bail!("MiniStack did not answer within {START_LIMIT:?}. Its log:\n{}", server.log());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(Some(Self { endpoint, http: http.clone(), python: python.clone(), server: Some((server, folder)) }))
    }

    /// Runs a command of `local/python/stack.py`, which documents them.
    ///
    /// # Errors
    /// If the script fails: its message is passed on.
    pub async fn ask(&self, command: &str, input: &Value) -> Result<Value> {
        let mut script = Command::new(&self.python)
            .envs(aws_environment(&self.endpoint))
            .arg(places::checkout().join("local/python/stack.py"))
            .arg(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the Python of .muster/venv cannot be started: `make clean` removes it, the next start makes it")?;
        if let Some(mut stdin) = script.stdin.take() {
            stdin.write_all(input.to_string().as_bytes()).await.context("stack.py does not read its input")?;
        }
        let output = script.wait_with_output().await.context("stack.py cannot be waited for")?;
        if !output.status.success() {
            bail!("stack.py {command} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("stack.py {command} answered no JSON"))
    }

    /// Calls a function and waits for its answer.
    ///
    /// # Errors
    /// If there is no such function, or it answered with an error.
    pub async fn invoke(&self, function: &str, payload: &Value) -> Result<Value> {
        let url = format!("{}/2015-03-31/functions/{function}/invocations", self.endpoint);
        let answer = self.http.post(url).body(payload.to_string()).send().await.with_context(|| format!("{function} cannot be called"))?;
        let status = answer.status();
        let failed = answer.headers().contains_key("x-amz-function-error");
        let body = answer.text().await.with_context(|| format!("the answer of {function} ended early"))?;
        if failed || !status.is_success() {
            bail!("{function} answered {status}: {body}");
        }
        serde_json::from_str(&body).with_context(|| format!("{function} answered no JSON: {body}"))
    }

    /// What an AWS client needs in its environment to talk to this cloud.
    #[must_use]
    pub fn environment(&self) -> [(String, String); 4] {
        aws_environment(&self.endpoint)
    }

    /// Whether it ends with us.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.server.is_some()
    }

    /// What MiniStack itself has printed.
    #[must_use]
    pub fn log(&self) -> String {
        self.server.as_ref().map_or_else(String::new, |(server, _)| server.log())
    }

    /// Stops the cloud with all of its functions, and removes its files. One that we did not start is left alone.
    ///
    /// # Errors
    /// If it could not be waited for.
    pub async fn stop(self) -> Result<()> {
        match self.server {
            Some((server, _folder)) => server.stop().await,
            None => Ok(()),
        }
    }
}

/// The keys are the ones that MiniStack accepts from anybody.
fn aws_environment(endpoint: &str) -> [(String, String); 4] {
    [("AWS_ENDPOINT_URL", endpoint), ("AWS_DEFAULT_REGION", REGION), ("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
}
