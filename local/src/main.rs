//! `cargo run -q -p local -- COMMAND`: see [`USAGE`].

mod demo;
mod partition;
mod standin_command;
mod watch;
mod with_server;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use local::mysql::Brand;
use local::{environment, migrations, mutants, tools};

const USAGE: &str = "\
usage: cargo run -q -p local -- COMMAND

  run                                start everything, play the demo, stay up until Ctrl-C
  demo                               the same, then stop
  watch                              start everything, with hot reload of the functions
  with-mysql -- PROGRAM ARGUMENTS…   run a program with DATABASE_URL set: the given one, or a fresh MySQL of our own
  with-mariadb -- PROGRAM ARGUMENTS… the same with a MariaDB: the one of MARIADB_URL, or a fresh one
  tools SET…                         make sure that pinned tools are in .muster/venv: stack, lint, lambda, nextest, clients, deny
  mutants [ID…]                      try the mutants of tests/mutants.yaml, or those whose ids begin so, against their killers
  migrate                            bring the database of DATABASE_URL to the schema of this version
  glab                               fetch GitLab's own command line, print its path";

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run"] => demo::run(true).await,
        ["demo"] => demo::run(false).await,
        ["watch"] => watch::run().await,
        ["with-mysql", "--", program, arguments @ ..] => with_server::run(Brand::MySql, program, arguments).await,
        ["with-mariadb", "--", program, arguments @ ..] => with_server::run(Brand::MariaDb, program, arguments).await,
        ["tools", sets @ ..] => {
            tools::ensure(sets)?;
            Ok(ExitCode::SUCCESS)
        }
        ["mutants", wanted @ ..] => mutants::run(wanted).await,
        ["migrate"] => migrate().await,
        ["gitlab", options @ ..] => standin_command::run(options).await,
        ["glab"] => {
            println!("{}", local::glab::program()?.display());
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("unknown command\n{USAGE}\n{}", standin_command::USAGE),
    }
}

async fn migrate() -> Result<ExitCode> {
    let url = environment::variable("DATABASE_URL")
        .context("DATABASE_URL is not set: it names the database to migrate, mysql://user:password@host:port/database")?;
    let applied = migrations::apply(&url).await?;
    match applied.as_slice() {
        [] => println!("the schema is up to date"),
        names => println!("applied {}", names.join(", ")),
    }
    Ok(ExitCode::SUCCESS)
}
