//! GitLab's own command line, as a client of the stand-in that nobody of the project wrote.

use std::path::PathBuf;

use anyhow::Result;

use crate::mysql::debian::{Source, unpack};
use crate::{environment, places};

const GLAB: Source = Source {
    name: "glab",
    folder: "glab",
    suite: "sid",
    wanted: &["glab"],
    megabytes: 12,
    otherwise: "Install glab so that it is on PATH.",
};

/// The machine's own `glab`, or the one in `.muster/glab`, fetched from Debian at the first call. It needs no library but libc.
///
/// # Errors
/// If there is none and it cannot be fetched.
pub fn program() -> Result<PathBuf> {
    let path = environment::variable("PATH").unwrap_or_default();
    if let Some(found) = std::env::split_paths(&path).map(|folder| folder.join("glab")).find(|path| path.is_file()) {
        return Ok(found);
    }
    let root = places::muster()?.join(GLAB.folder);
    let program = root.join("usr/bin/glab");
    let _setup = places::lock_setup()?;
    if !program.exists() {
        unpack(&GLAB, &root)?;
    }
    Ok(program)
}
