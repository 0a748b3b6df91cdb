//! The partition of a local run: where requests land.

use anyhow::{Result, ensure};
use local::progress::say;
use local::stack::{PROJECT, Stack, TARGET_BRANCH};
use serde_json::json;

/// Ordinary limit on a batch that shows no progress, in seconds.
pub const NO_PROGRESS_S: u32 = 600;

/// Makes the partition `default`, or changes its limit, as an operator would.
pub async fn set(stack: &Stack, no_progress_s: u32) -> Result<()> {
    let command = json!({
        "action": "set_partition",
        "actor": "local",
        "reason": "a local run needs a place to land requests",
        "partition": "default",
        "project": PROJECT,
        "target_branch": TARGET_BRANCH,
        "path_template": "access/{target_key}/{subject_id}.json",
        "allowed_prefixes": ["access/"],
        "no_progress_s": no_progress_s,
    });
    let answer = stack.cloud.invoke(&stack.function("ops"), &command).await?;
    let outcome = answer["outcome"].as_str().unwrap_or_default();
    ensure!(outcome == "done" || outcome == "already", "ops refused {command}: {answer}");
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        say(format!("ops set_partition warns: {}", warning.as_str().unwrap_or("?")));
    }
    say(format!(
        "ops set_partition: requests land on {TARGET_BRANCH} of {PROJECT}, a batch fails after {no_progress_s} s without progress ({outcome})"
    ));
    Ok(())
}
