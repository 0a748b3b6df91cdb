//! One mutant against its killers.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Command;

use super::VARIABLE;
use super::build::Tests;
use super::list::Mutant;

/// Far above what the slowest killer takes: a mutant that makes a test wait for ever is dead too.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Debug)]
pub enum Verdict {
    /// Every test that is named for it failed.
    Killed,
    Lives {
        past: Vec<String>,
    },
    Equivalent(String),
}

/// # Errors
/// If a test binary cannot be started.
pub async fn of(tests: &Tests, mutant: &Mutant) -> Result<Verdict> {
    if let Some(why) = &mutant.equivalent {
        return Ok(Verdict::Equivalent(why.clone()));
    }
    let passed = passed(tests, &mutant.killers, Some(&mutant.id)).await?;
    let past: Vec<String> = mutant.killers.iter().filter(|name| passed.contains(*name)).cloned().collect();
    Ok(if past.is_empty() { Verdict::Killed } else { Verdict::Lives { past } })
}

/// Which of the named tests pass.
///
/// # Errors
/// If a test binary cannot be started.
pub async fn passed(tests: &Tests, names: &[String], mutant: Option<&str>) -> Result<BTreeSet<String>> {
    let mut passed = BTreeSet::new();
    for ((binary, folder), names) in tests.by_binary(names) {
        let mut command = Command::new(binary);
        command.arg("--exact").args(names).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        match mutant {
            Some(id) => command.env(VARIABLE, id),
            None => command.env_remove(VARIABLE),
        };
        let Ok(ended) = tokio::time::timeout(LIMIT, command.output()).await else { continue };
        let ended = ended.with_context(|| format!("{} cannot be started", binary.display()))?;
        let told = String::from_utf8_lossy(&ended.stdout).into_owned();
        passed.extend(told.lines().filter_map(passed_test).map(str::to_owned));
    }
    Ok(passed)
}

fn passed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... ok")
}
