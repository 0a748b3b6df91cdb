//! `local -- gitlab …`: the GitLab stand-in alone, for whoever tests an integration of their own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use local::gitlab::{Options, PipelinePlan, Scenario, StandIn, Webhook};

pub const USAGE: &str = "\
  gitlab [OPTION VALUE]…             the GitLab stand-in alone, until Ctrl-C (docs/STAND_IN.md):
           --repository FOLDER       bare repository, made if absent; without it one that is gone afterwards
           --project GROUP/NAME      acme/access        --project-id NUMBER    7
           --branch NAME             main               --token TEXT           local-token
           --bind ADDRESS:PORT       127.0.0.1:0, where 0 lets the system choose
           --scenario FILE           how it behaves, and what people do
           --webhook URL --webhook-secret TEXT";

/// Serves until Ctrl-C. The first line on stdout is the address alone, for scripts.
pub async fn run(words: &[&str]) -> Result<ExitCode> {
    let scratch = tempfile::tempdir().context("no temporary folder can be made")?;
    let mut options = Options {
        repository: scratch.path().join("repository.git"),
        project: "acme/access".into(),
        project_id: 7,
        target_branch: "main".into(),
        token: "local-token".into(),
        webhook: None,
        pipeline: PipelinePlan::pass(Duration::from_secs(1)),
        bind: SocketAddr::from(([127, 0, 0, 1], 0)),
    };
    let (mut scenario, mut url, mut secret) = (None, None, String::new());
    for pair in words.chunks(2) {
        let [name, value] = pair else { bail!("{} has no value\nusage:\n{USAGE}", pair[0]) };
        match *name {
            "--repository" => options.repository = PathBuf::from(value),
            "--project" => options.project = (*value).to_owned(),
            "--project-id" => options.project_id = value.parse().context("--project-id takes a number")?,
            "--branch" => options.target_branch = (*value).to_owned(),
            "--token" => options.token = (*value).to_owned(),
            "--bind" => options.bind = value.parse().context("--bind takes an address such as 127.0.0.1:8080")?,
            "--scenario" => scenario = Some(Scenario::read(value.as_ref())?),
            "--webhook" => url = Some((*value).to_owned()),
            "--webhook-secret" => secret = (*value).to_owned(),
            other => bail!("{other} is no option\nusage:\n{USAGE}"),
        }
    }
    options.webhook = url.map(|url| Webhook { url, secret });
    let (project, token) = (options.project.clone(), options.token.clone());
    let mut standin = StandIn::start(options).await?;
    if let Some(scenario) = scenario {
        standin.play(scenario)?;
    }
    println!("{}", standin.url());
    eprintln!("GitLab stand-in for {project}, repository {}", standin.repository().display());
    eprintln!("try: curl -H 'PRIVATE-TOKEN: {token}' {}/api/v4/projects/{}", standin.url(), project.replace('/', "%2F"));
    tokio::signal::ctrl_c().await.context("Ctrl-C cannot be waited for")?;
    standin.stop().await;
    Ok(ExitCode::SUCCESS)
}
