//! `make watch`: the same stack, with every function compiled anew when its code changes.
//!
//! HTTP calls, queue messages and schedules arrive at the local cloud as ever; it forwards them to `cargo lambda
//! watch`, which compiles and runs the functions.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use local::functions::{self, FUNCTIONS};
use local::interrupt::Interrupts;
use local::places::{self, free_port};
use local::progress::{heading, say};
use local::stack::Stack;
use local::tools;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::partition;

/// Where cargo lambda listens by itself, and where the README's lines look for it.
const USUAL_PORT: u16 = 9000;
/// The first call of a function after a change compiles it and what it depends on, and that counts as its run time.
const COMPILE_LIMIT: Duration = Duration::from_secs(900);
/// Processes for each function: two, so that a call that makes another one to the same function does not wait for itself.
const PROCESSES: &str = "2";

pub async fn run() -> Result<ExitCode> {
    let mut interrupts = Interrupts::catch()?;
    heading("starting: database, local cloud, forge, and cargo lambda watch");
    let stack = tokio::select! {
        stack = Stack::start(unused_code()) => stack?,
        interrupt = interrupts.next() => return Ok(interrupt.exit_code().into()),
    };
    let watched = tokio::select! {
        watched = watch(&stack) => watched,
        _ = interrupts.next() => Ok(()),
    };
    println!();
    say("stopping");
    stack.stop().await.context("something did not stop")?;
    say("everything has stopped");
    watched.map(|()| ExitCode::SUCCESS)
}

/// The deployed functions never run, for their calls are forwarded; what is deployed says so if one does.
async fn unused_code() -> Result<PathBuf> {
    let folder = places::muster()?.join("forwarded");
    for name in FUNCTIONS {
        functions::write_script(
            &folder.join(name).join("bootstrap"),
            "#!/bin/sh\necho 'calls of this function belong to cargo lambda watch' >&2\nexit 1\n",
        )?;
    }
    Ok(folder)
}

/// Runs until cargo lambda ends, which it should not.
async fn watch(stack: &Stack) -> Result<()> {
    let programs =
        tokio::task::spawn_blocking(|| tools::ensure(&["lambda"])).await.context("installing cargo lambda was interrupted")??;
    let port = match TcpListener::bind(("127.0.0.1", USUAL_PORT)).await {
        Ok(_) => USUAL_PORT,
        Err(_) => free_port().await?,
    };
    let environment = places::muster()?.join("watch.env");
    fs::write(&environment, variables(stack).await?).with_context(|| format!("cannot write {}", environment.display()))?;
    let mut server = start(&programs, port, &environment)?;
    tokio::select! {
        ended = server.wait() => bail!("cargo lambda watch ended: {}", ended?),
        forwarded = forward(stack, port) => forwarded?,
    }
    show_addresses(stack, port);
    let ended = server.wait().await?;
    bail!("cargo lambda watch ended: {ended}")
}

/// The template's environment does not reach cargo lambda: all of it goes into one file that it reads.
async fn variables(stack: &Stack) -> Result<String> {
    let names = FUNCTIONS.map(|name| stack.function(name));
    let answer = stack.cloud.ask("variables", &json!({ "functions": names })).await?;
    let answer: BTreeMap<String, BTreeMap<String, String>> =
        serde_json::from_value(answer).context("the functions' environment has an unknown form")?;
    let mut all: BTreeMap<String, String> = answer.into_values().flatten().collect();
    all.extend(stack.cloud.environment());
    Ok(all.into_iter().map(|(name, value)| format!("{name}={value}\n")).collect())
}

fn start(programs: &std::path::Path, port: u16, environment: &std::path::Path) -> Result<Child> {
    Command::new(programs.join("cargo-lambda"))
        .args(["lambda", "watch", "-A", "127.0.0.1", "-P", &port.to_string(), "--concurrency", PROCESSES, "--env-file"])
        .arg(environment)
        .current_dir(places::checkout())
        .kill_on_drop(true)
        .spawn()
        .context("cargo lambda cannot be started: `make clean` removes it, the next start fetches it")
}

/// Calls each function once, so that no later call pays for its compilation, then sends all calls there.
async fn forward(stack: &Stack, port: u16) -> Result<()> {
    let root = format!("http://127.0.0.1:{port}/2015-03-31/functions");
    let client = reqwest::Client::builder().no_proxy().timeout(COMPILE_LIMIT).build().context("the HTTP client cannot be built")?;
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for name in FUNCTIONS {
        say(format!("compiling {name}"));
        let url = format!("{root}/{name}/invocations");
        client.post(&url).json(&first_event(name)).send().await.with_context(|| format!("{name} did not start: its errors are above"))?;
    }
    let urls: Value = FUNCTIONS
        .iter()
        .map(|name| (stack.function(name), json!(format!("{root}/{name}/invocations"))))
        .collect::<serde_json::Map<_, _>>()
        .into();
    stack.cloud.ask("forward", &json!({ "functions": urls, "timeout_s": COMPILE_LIMIT.as_secs() })).await?;
    if stack.stand_in().is_ok() {
        partition::set(stack, partition::NO_PROGRESS_S).await?;
    }
    Ok(())
}

/// An event that each function answers without doing anything.
fn first_event(function: &str) -> Value {
    match function {
        "settle" => json!({ "Records": [] }),
        "claim-round" => json!({ "dry_run": true }),
        "ops" => json!({ "action": "status", "actor": "make watch", "reason": "first call" }),
        "sweep" => json!({}),
        // Both take what the HTTP API sends.
        _ => json!({
            "version": "2.0",
            "routeKey": "GET /status",
            "rawPath": "/status",
            "rawQueryString": "",
            "headers": {},
            "requestContext": {
                "accountId": "000000000000",
                "apiId": "watch",
                "domainName": "localhost",
                "http": { "method": "GET", "path": "/status", "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "make watch" },
                "requestId": "watch",
                "routeKey": "GET /status",
                "stage": "$default",
                "time": "01/Jan/2026:00:00:00 +0000",
                "timeEpoch": 0
            },
            "isBase64Encoded": false
        }),
    }
}

fn show_addresses(stack: &Stack, port: u16) {
    heading("ready: change any function's code and call it again (Ctrl-C ends everything)");
    println!(
        "
  the API, through the local cloud:      curl -sS '{api}/status'
  the API, straight to the functions:    curl -sS http://127.0.0.1:{port}/status
  one function with a sample event:      .muster/venv/bin/cargo-lambda lambda invoke -A 127.0.0.1 -P {port} claim-round --data-file events/claim-round-dry-run.json
  the forge:                             {forge}
  the database:                          {database}
",
        api = stack.api,
        forge = stack.forge.url,
        database = stack.database_url,
    );
}
