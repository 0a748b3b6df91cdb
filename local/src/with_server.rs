//! Runs a program with a database: the given one, or a server that lives as long as the program.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command as Plain, ExitCode, ExitStatus};

use anyhow::{Context, Result};
use local::environment;
use local::interrupt::{Interrupt, Interrupts};
use local::mysql::{self, Brand};
use tokio::process::{Child, Command};

/// The program gets the server's address as DATABASE_URL, whichever brand it is of.
///
/// Exits as the program does, or with 128 + the signal that ended it, as a shell would.
pub async fn run(brand: Brand, program: &str, arguments: &[&str]) -> Result<ExitCode> {
    let given = match brand {
        Brand::MySql => "DATABASE_URL",
        Brand::MariaDb => "MARIADB_URL",
    };
    if let Some(url) = environment::variable(given) {
        let error = Plain::new(program).args(arguments).env("DATABASE_URL", url).exec();
        return Err(error).with_context(|| format!("`{program}` cannot be started"));
    }
    let server = mysql::start(brand).await?;
    let outcome = until_it_ends(program, arguments, &server.url).await;
    server.stop().await?;
    Ok(exit_code(outcome?))
}

async fn until_it_ends(program: &str, arguments: &[&str], url: &str) -> Result<ExitStatus> {
    let mut interrupts = Interrupts::catch()?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("DATABASE_URL", url)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("`{program}` cannot be started"))?;
    loop {
        tokio::select! {
            ended = child.wait() => return ended.with_context(|| format!("`{program}` cannot be waited for")),
            interrupt = interrupts.next() => match interrupt {
                // The program has got it too: it ends at its own pace, and we with it.
                Interrupt::FromTerminal => {}
                Interrupt::Termination => terminate(&child).await,
            },
        }
    }
}

/// Asks the program to end; the standard library can only kill.
async fn terminate(child: &Child) {
    if let Some(pid) = child.id() {
        // If the program has ended meanwhile there is nobody left to ask.
        let _ = Command::new("sh").args(["-c", "kill -TERM \"$1\"", "sh", &pid.to_string()]).status().await;
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    ExitCode::from(code)
}
