//! The functions as the cloud wants them: one `bootstrap` each.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::process::Command;

use crate::{environment, places};

/// Names of the packages, of their binaries, and (after the stack's name) of the deployed functions.
pub const FUNCTIONS: [&str; 6] = ["admit", "webhook", "claim-round", "settle", "sweep", "ops"];

/// Builds all functions as the tests do, in the same target folder, and puts them stripped into
/// `.muster/functions/NAME/bootstrap`. Returns `.muster/functions`.
///
/// # Errors
/// If cargo fails; its own messages are on the terminal by then.
pub async fn build() -> Result<PathBuf> {
    let cargo = environment::variable("CARGO").unwrap_or_else(|| "cargo".to_owned());
    // All members at once: with the same features as `make test`, nothing is compiled twice.
    let built = Command::new(cargo)
        .args(["build", "--workspace", "--bins", "--message-format", "json-render-diagnostics"])
        .current_dir(places::checkout())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        // Not `output`, which would keep cargo's progress and errors from the terminal.
        .spawn()
        .context("`cargo` cannot be started")?
        .wait_with_output()
        .await
        .context("`cargo` cannot be waited for")?;
    if !built.status.success() {
        bail!("the functions do not compile ({}): the reason is above", built.status);
    }
    let folder = places::muster()?.join("functions");
    for (name, executable) in executables(&String::from_utf8_lossy(&built.stdout)) {
        let bootstrap = folder.join(name).join("bootstrap");
        if !is_newer(&bootstrap, &executable) {
            strip(&executable, &bootstrap).await?;
        }
    }
    for name in FUNCTIONS {
        if !folder.join(name).join("bootstrap").exists() {
            bail!("cargo built no binary called {name}: is functions/{name} in the workspace?");
        }
    }
    Ok(folder)
}

/// What cargo says it has made, one JSON document in each line.
fn executables(messages: &str) -> Vec<(&'static str, PathBuf)> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let executable = message["executable"].as_str()?;
            let name = message["target"]["name"].as_str()?;
            let name = FUNCTIONS.into_iter().find(|function| *function == name)?;
            Some((name, PathBuf::from(executable)))
        })
        .collect()
}

fn is_newer(one: &Path, other: &Path) -> bool {
    modified(one).zip(modified(other)).is_some_and(|(one, other)| one >= other)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Without its symbols a debug binary has a tenth of the size, and is deployed in a tenth of the time.
async fn strip(executable: &Path, bootstrap: &Path) -> Result<()> {
    if let Some(folder) = bootstrap.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let unfinished = bootstrap.with_extension("unfinished");
    let status = Command::new("strip")
        .arg("-o")
        .arg(&unfinished)
        .arg(executable)
        .status()
        .await
        .context("`strip` cannot be started: it comes with the linker that Rust needs, in the package binutils")?;
    if !status.success() {
        bail!("strip failed on {} ({status})", executable.display());
    }
    fs::rename(&unfinished, bootstrap).with_context(|| format!("cannot name {}", bootstrap.display()))
}

/// Writes an executable script.
///
/// # Errors
/// If the file cannot be written.
pub fn write_script(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).with_context(|| format!("cannot make {} executable", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_functions_are_taken_from_what_cargo_has_made() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"admit"},"executable":"/t/debug/admit"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"admit"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"local"},"executable":"/t/debug/local"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
            "\nnot json\n"
        );
        assert_eq!(executables(messages), [("admit", PathBuf::from("/t/debug/admit"))]);
    }
}
