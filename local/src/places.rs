//! Where the local stack keeps what it downloads and runs: `.muster` in the checkout, and nowhere else.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::net::TcpListener;

/// The checkout.
#[must_use]
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// `.muster`, created if absent.
///
/// # Errors
/// If the folder cannot be created.
pub fn muster() -> Result<PathBuf> {
    let folder = checkout().join(".muster");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}, where the local stack keeps its files", folder.display()))?;
    Ok(folder)
}

/// Held while one process does what only one may do at a time; the kernel frees it when the holder dies.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held for its lock")] File);

/// Waits until no other process is preparing `.muster`.
///
/// # Errors
/// If the lock file cannot be opened or locked.
pub fn lock_setup() -> Result<Lock> {
    lock("setup.lock")
}

fn lock(name: &str) -> Result<Lock> {
    let path = muster()?.join(name);
    let file = File::create(&path).with_context(|| format!("cannot open the lock {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(Lock(file))
}

/// A port of 127.0.0.1 that nobody listens on now. Another program may still be faster: its taker must cope with that.
///
/// # Errors
/// If the system gives none.
pub async fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("the system gives no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

/// A folder for one run, `.muster/run/<pid>-<n>`, removed with its contents when dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _alive: File,
}

impl RunFolder {
    /// Makes the folder, and removes those whose process has died without cleaning up.
    ///
    /// # Errors
    /// If a folder or its lock cannot be created.
    pub fn create(purpose: &str) -> Result<Self> {
        let runs = muster()?.join("run");
        fs::create_dir_all(&runs).with_context(|| format!("cannot create the folder {}", runs.display()))?;
        // Not the lock of the set-up, which is held for as long as a download takes.
        let _runs = lock("run.lock")?;
        remove_abandoned(&runs);
        let pid = std::process::id();
        let path = (0..)
            .map(|n| runs.join(format!("{pid}-{purpose}-{n}")))
            .find(|path| !path.exists())
            .context("no free name for a run folder")?;
        fs::create_dir(&path).with_context(|| format!("cannot create the folder {}", path.display()))?;
        let alive = File::create(path.join(ALIVE)).with_context(|| format!("cannot create a file in {}", path.display()))?;
        alive.lock().with_context(|| format!("cannot lock a file in {}", path.display()))?;
        Ok(Self { path, _alive: alive })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What is left here is removed by the next run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

const ALIVE: &str = "alive.lock";

/// A run folder whose lock is free belongs to nobody any more.
fn remove_abandoned(runs: &Path) {
    let Ok(entries) = fs::read_dir(runs) else {
        return;
    };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let held = File::open(folder.join(ALIVE)).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
        if !held {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}
