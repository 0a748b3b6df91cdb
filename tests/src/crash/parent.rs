//! Starting a function as a process, and seeing how it ended.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::plan::{Plan, VARIABLE};
use crate::deadline::{until, within};

/// The test that is the process: see [`super::child::run`].
const ENTRANCE: [&str; 4] = ["--exact", "killed::the_process_that_is_killed", "--ignored", "--nocapture"];
const SIGKILL: i32 = 9;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Killed,
    /// It answered: the boundary was not met.
    Answered,
}

/// Starts this very program once more, as the function.
///
/// # Panics
/// When it cannot be started.
pub fn start(plan: &Plan) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let plan = serde_json::to_string(plan).expect("a plan is JSON");
    let mut command = Command::new(program);
    command.args(ENTRANCE).env(VARIABLE, plan).env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true).spawn().expect("this program can be started once more")
}

/// Runs the function to its end, whichever that is.
///
/// # Panics
/// When it ended in any other way than by an answer or by SIGKILL, with what it said.
pub async fn run(plan: &Plan) -> End {
    let output = within("the end of a process", start(plan).wait_with_output()).await.expect("a child can be awaited");
    match how(output.status) {
        Some(end) => end,
        None => panic!(
            "the process of {plan:?} ended with {}:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

pub fn how(status: ExitStatus) -> Option<End> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Some(End::Answered),
        (_, Some(SIGKILL)) => Some(End::Killed),
        _ => None,
    }
}

/// Every boundary that a process met, in order.
pub fn boundaries(log: &Path) -> Vec<String> {
    std::fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Returns once the process stands still.
///
/// # Panics
/// When it does not, or is gone.
pub async fn until_frozen(child: &Child) {
    let id = child.id().expect("it was not awaited yet");
    until("a frozen process", async || {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("the process is there");
        // The state follows the name, which stands in parentheses and may hold anything.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        (state == Some('T')).then_some(())
    })
    .await;
}

/// Lets a frozen process go on.
///
/// # Panics
/// When it is gone.
pub fn thaw(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("it was not awaited yet");
    kill_process(id, Signal::CONT).expect("a parent may signal its child");
}
