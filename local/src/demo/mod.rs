//! `make run` and `make demo`: the whole of Muster on one machine, doing its job in front of you.

mod caller;
mod closing;
mod scenes;
mod watching;

use std::process::ExitCode;

use anyhow::{Context, Result};
use local::functions;
use local::interrupt::Interrupts;
use local::progress::{heading, say};
use local::stack::Stack;
use time::OffsetDateTime;

/// How much of the functions' logs is shown when something went wrong, in lines.
const LOG_LINES: usize = 60;

/// Starts everything and plays the scenes; then stays until Ctrl-C if `stay`. Leaves no process behind.
pub async fn run(stay: bool) -> Result<ExitCode> {
    let mut interrupts = Interrupts::catch()?;
    heading("starting: database, local cloud, forge, and the functions");
    let stack = tokio::select! {
        stack = Stack::start(build()) => stack?,
        interrupt = interrupts.next() => return Ok(interrupt.exit_code().into()),
    };
    let since = now_ms();
    let code = tokio::select! {
        played = play(&stack, stay) => match played {
            Ok(()) if stay => {
                interrupts.next().await;
                Ok(ExitCode::SUCCESS)
            }
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                show_logs(&stack, since).await;
                Err(error)
            }
        },
        interrupt = interrupts.next() => Ok(interrupt.exit_code().into()),
    };
    println!();
    say("stopping");
    stack.stop().await.context("something did not stop")?;
    say("everything has stopped");
    code
}

async fn build() -> Result<std::path::PathBuf> {
    let folder = functions::build().await?;
    say("functions built");
    Ok(folder)
}

async fn play(stack: &Stack, stay: bool) -> Result<()> {
    closing::tell_addresses(stack);
    scenes::play(stack).await?;
    closing::show_history(stack).await?;
    if stay {
        closing::show_addresses(stack)?;
    }
    Ok(())
}

/// The cause of a failed scene is in here more often than not.
async fn show_logs(stack: &Stack, since_ms: u64) {
    heading("the last lines of the functions' logs");
    match stack.logs(since_ms).await {
        Ok(lines) => {
            let told = lines.iter().filter(|line| !is_bookkeeping(line)).collect::<Vec<_>>();
            for line in told.iter().skip(told.len().saturating_sub(LOG_LINES)) {
                println!("{}", line.trim_end());
            }
        }
        Err(error) => println!("they cannot be read: {error:#}"),
    }
    let cloud = stack.cloud.log();
    if !cloud.trim().is_empty() {
        heading("what the local cloud itself says");
        println!("{}", cloud.trim_end());
    }
}

/// What Lambda adds around each call.
fn is_bookkeeping(line: &str) -> bool {
    ["START RequestId", "END RequestId", "REPORT RequestId"].iter().any(|word| line.contains(word))
}

fn now_ms() -> u64 {
    u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or_default() * 1000
}
