//! A server that cannot outlive us.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command as Plain, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

/// A shell stands between us and the server and reads a pipe that only we hold. When we close it, or die in any
/// way, it reads the end, stops the server and removes its folders. In a process group of its own, Ctrl-C in the
/// terminal does not reach it, and the server ends after those who use it. If the server ends by itself its folder
/// stays, because its log tells us why.
const GUARD: &str = r#"
folder=$1 scratch=$2; shift 2
exec 3<&0
"$@" 3<&- </dev/null & server=$!
{
    read -r _ <&3
    echo >"$folder/stopping" # Not `:`, with which a shell ends when the folder is gone already.
    kill -TERM "$server"
    left=100
    while [ $left -gt 0 ] && kill -0 "$server"; do sleep 0.1; left=$((left - 1)); done
    kill -KILL "$server"
} 2>/dev/null & guard=$!
wait "$server"; status=$?
kill "$guard" 2>/dev/null
rm -rf "$scratch"
[ ! -e "$folder/stopping" ] || rm -rf "$folder"
exit "$status"
"#;

/// The file in a server's folder that holds what it prints.
pub const LOG: &str = "server.log";
/// Longer than the guard's patience, so that it is the guard that gives up first.
const STOP_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Supervised {
    shell: Child,
    hold: Option<ChildStdin>,
    log: PathBuf,
}

impl Supervised {
    /// Starts `command`, which keeps its files in `folder` and what must lie elsewhere in `scratch`. What it prints
    /// goes to `server.log` in the folder.
    pub fn start(command: &Plain, folder: &Path, scratch: &Path) -> Result<Self> {
        let path = folder.join(LOG);
        let log = File::options().create(true).append(true).open(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut shell = Command::new("sh");
        shell
            .args(["-c", GUARD, "muster-guard"])
            .args([folder, scratch])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().context("the log of the server cannot be shared")?)
            .stderr(log)
            .process_group(0);
        let mut shell = shell.spawn().context("`sh`, which guards the server, cannot be started")?;
        let hold = shell.stdin.take();
        Ok(Self { shell, hold, log: path })
    }

    /// What the server has printed so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The server's end, if it has ended already.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.shell.try_wait().context("the server cannot be waited for")
    }

    pub async fn stop(mut self) -> Result<()> {
        drop(self.hold.take());
        match timeout(STOP_LIMIT, self.shell.wait()).await {
            Ok(ended) => {
                ended.context("the server cannot be waited for")?;
                Ok(())
            }
            Err(_) => bail!("the server did not end within {STOP_LIMIT:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::places::RunFolder;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn script(text: &str) -> Plain {
        let mut command = Plain::new("sh");
        command.args(["-c", text]);
        command
    }

    async fn until(mut reached: impl FnMut() -> bool) {
        let started = Instant::now();
        while !reached() {
            assert!(started.elapsed() < PATIENCE, "not reached within {PATIENCE:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts a server that writes its process id into its log.
    async fn sleeper(folder: &RunFolder) -> (Supervised, std::path::PathBuf) {
        let scratch = folder.path().join("scratch");
        std::fs::create_dir(&scratch).unwrap();
        let server = Supervised::start(&script("echo $$; exec sleep 60"), folder.path(), &scratch).unwrap();
        until(|| server.log().ends_with('\n')).await;
        let alive = Path::new("/proc").join(server.log().trim());
        (server, alive)
    }

    #[tokio::test]
    async fn a_server_ends_with_its_owner_even_if_nobody_stops_it() {
        let folder = RunFolder::create("test").unwrap();
        let (server, alive) = sleeper(&folder).await;
        assert!(alive.exists());
        // What the kernel does to the pipe of a killed process.
        drop(server);
        until(|| !alive.exists()).await;
        until(|| !folder.path().exists()).await;
    }

    #[tokio::test]
    async fn a_server_ends_even_if_its_folder_went_first() {
        let folder = RunFolder::create("test").unwrap();
        let (server, alive) = sleeper(&folder).await;
        drop(folder);
        drop(server);
        until(|| !alive.exists()).await;
    }

    #[tokio::test]
    async fn stop_returns_when_the_server_has_gone() {
        let folder = RunFolder::create("test").unwrap();
        let (server, alive) = sleeper(&folder).await;
        server.stop().await.unwrap();
        assert!(!alive.exists() && !folder.path().exists());
    }

    #[tokio::test]
    async fn a_server_that_fails_leaves_its_log() {
        let folder = RunFolder::create("test").unwrap();
        let scratch = folder.path().join("scratch");
        std::fs::create_dir(&scratch).unwrap();
        let mut server = Supervised::start(&script("echo no such disk >&2; exit 3"), folder.path(), &scratch).unwrap();
        until(|| server.exited().unwrap().is_some()).await;
        assert_eq!(server.exited().unwrap().and_then(|status| status.code()), Some(3));
        assert_eq!(server.log(), "no such disk\n");
        assert!(!scratch.exists());
    }
}
