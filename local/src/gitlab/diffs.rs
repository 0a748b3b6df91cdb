//! Differences between two commits, file by file, as `compare` shows them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::repo::Repo;

/// The differences of a range such as `a...b`.
pub(crate) async fn between(repo: &Repo, range: &str) -> Result<Vec<Value>> {
    let raw = repo.run(&["diff", "--raw", "-z", "-M", "--no-abbrev", range]).await?;
    let raw = String::from_utf8_lossy(&raw).into_owned();
    let mut parts = raw.split('\0').filter(|part| !part.is_empty());
    let mut diffs = Vec::new();
    while let Some(head) = parts.next() {
        let words: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
        let [old_mode, new_mode, _, _, status] = words[..] else {
            anyhow::bail!("git diff --raw wrote {head:?}");
        };
        let old_path = parts.next().context("git diff --raw named no path")?;
        let renamed = status.starts_with('R') || status.starts_with('C');
        let new_path = if renamed { parts.next().context("git diff --raw named no new path")? } else { old_path };
        let patch = repo.run(&["diff", "-M", "--no-color", range, "--", old_path, new_path]).await?;
        let patch = String::from_utf8_lossy(&patch).into_owned();
        diffs.push(json!({
            "old_path": old_path,
            "new_path": new_path,
            "a_mode": old_mode,
            "b_mode": new_mode,
            "new_file": status == "A",
            "renamed_file": renamed,
            "deleted_file": status == "D",
            "diff": patch.find("@@").map_or("", |at| &patch[at..]),
        }));
    }
    Ok(diffs)
}
