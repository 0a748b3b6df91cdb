//! The integration tests of the copy, built once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::copy;
use super::list::Mutant;
use crate::{places, progress};

/// Test binaries that may hold killers, and which tests each has.
#[derive(Debug)]
pub struct Tests {
    /// The binary of each test, and the folder that its tests run in.
    homes: BTreeMap<String, (PathBuf, PathBuf)>,
}

impl Tests {
    #[must_use]
    pub fn have(&self, name: &str) -> bool {
        self.homes.contains_key(name)
    }

    /// The named tests by binary, with the folder it runs in.
    #[must_use]
    pub fn by_binary<'n>(&self, names: &'n [String]) -> BTreeMap<&(PathBuf, PathBuf), Vec<&'n str>> {
        let mut by_binary: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for name in names {
            if let Some(home) = self.homes.get(name) {
                by_binary.entry(home).or_default().push(name);
            }
        }
        by_binary
    }
}

/// Builds the tests of the mutants' copy and asks each binary what it has.
///
/// # Errors
/// If the copy cannot be made or built.
pub fn tests(mutants: &[Mutant]) -> Result<Tests> {
    let checkout = copy::bring_up_to_date(mutants)?;
    progress::say("building the tests with all mutants woven in");
    let target = places::muster()?.join("mutants").join("target");
    let built = Command::new("cargo")
        .args(["test", "--quiet", "--workspace", "--test", "all", "--no-run", "--message-format=json-render-diagnostics"])
        .current_dir(&checkout)
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit())
        .output()
        .context("`cargo` cannot be started")?;
    if !built.status.success() {
        bail!("the tests do not build with the mutants woven in; the texts of tests/mutants.yaml must be whole expressions");
    }
    let mut homes = BTreeMap::new();
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let Some((binary, folder)) = killers_home(line) else { continue };
        for name in listed(&binary, &folder)? {
            homes.insert(name, (binary.clone(), folder.clone()));
        }
    }
    if homes.is_empty() {
        bail!("the copy has no tests");
    }
    Ok(Tests { homes })
}

/// The binary that a line of cargo's report tells of, if it is one that may hold killers.
fn killers_home(line: &str) -> Option<(PathBuf, PathBuf)> {
    let artifact: Value = serde_json::from_str(line).ok()?;
    let binary = artifact["executable"].as_str()?;
    let name = artifact["target"]["name"].as_str()?;
    let manifest = Path::new(artifact["manifest_path"].as_str()?);
    (artifact["profile"]["test"] == true && name == "all").then(|| {
        let folder = manifest.parent().map(Path::to_owned).unwrap_or_default();
        (PathBuf::from(binary), folder)
    })
}

fn listed(binary: &Path, folder: &Path) -> Result<Vec<String>> {
    let list = Command::new(binary)
        .args(["--list", "--format", "terse"])
        .current_dir(folder)
        .output()
        .with_context(|| format!("{} cannot be asked for its tests", binary.display()))?;
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
