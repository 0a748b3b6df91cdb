//! The copy of the checkout that mutants live in.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::list::{Mutant, Place};
use super::weave;
use crate::places;

/// Neither sources nor anything that a build of them reads.
const LEFT_OUT: [&str; 4] = [".git", ".muster", ".aws-sam", "target"];
/// Where the question stands that woven texts ask.
const CRATE_ROOT: &str = "shared/src/lib.rs";

/// Brings the copy to the checkout's state, all mutants of Rust woven in. What has not changed is not written, so that
/// it is not built again.
///
/// # Errors
/// If a file cannot be copied, or a mutant's text is not there.
pub fn bring_up_to_date(mutants: &[Mutant]) -> Result<PathBuf> {
    let copy = places::muster()?.join("mutants").join("checkout");
    let files = files_below(places::checkout())?;
    for stale in files_below(&copy)?.difference(&files) {
        fs::remove_file(copy.join(stale)).with_context(|| format!("cannot remove the stale {}", stale.display()))?;
    }
    for file in &files {
        let bytes = fs::read(places::checkout().join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        write_if_new(&copy.join(file), &mutated(file, bytes, mutants)?)?;
    }
    Ok(copy)
}

fn mutated(file: &Path, bytes: Vec<u8>, mutants: &[Mutant]) -> Result<Vec<u8>> {
    let here: Vec<&Mutant> =
        mutants.iter().filter(|one| matches!(one.place(), Place::File { path, .. } if Path::new(path) == file)).collect();
    let is_root = file == Path::new(CRATE_ROOT);
    if here.is_empty() && !is_root {
        return Ok(bytes);
    }
    let source = String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", file.display()))?;
    let woven = weave::into(&source, &here)?;
    Ok(if is_root { weave::with_question(&woven) } else { woven }.into_bytes())
}

fn write_if_new(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Paths of all files, from `root`; none where there is no such folder.
fn files_below(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().with_context(|| format!("cannot look at {}", path.display()))?;
            if kind.is_dir() && !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
                folders.push(path);
            } else if kind.is_file() {
                files.insert(path);
            }
        }
    }
    Ok(files)
}
