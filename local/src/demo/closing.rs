//! What is left at the end: the repository, and where to look.

use anyhow::{Context, Result, ensure};
use local::progress::{heading, say};
use local::stack::{Stack, TARGET_BRANCH};

use super::caller::Caller;

/// Files that must be on the target branch at the end, and files that must not.
const LANDED: [&str; 8] = [
    "access/billing-db/bob@example.com.json",
    "access/billing-db/jun@example.com.json",
    "access/prod-cluster/chen@example.com.json",
    "access/prod-cluster/dana@example.com.json",
    "access/warehouse/eve.md",
    "access/warehouse/eve.yaml",
    "access/warehouse/farid@example.com.json",
    "access/warehouse/hana@example.com.json",
];
const ABSENT: [&str; 3] = ["access/billing-db/ana@example.com.json", "access/warehouse/ivan.yaml", ".gitlab-ci.yml"];

/// Shows the batches and the history of the target branch, and holds the branch against what was asked for.
pub async fn show_history(stack: &Stack) -> Result<()> {
    heading("GET /batches");
    let caller = Caller::of(&stack.api)?;
    let batches = caller.get("/batches").await?;
    for batch in batches["batches"].as_array().with_context(|| format!("no batches in {batches}"))?.iter().rev() {
        let word = |field: &str| batch[field].as_str().unwrap_or("-").to_owned();
        println!(
            "  batch {:<3} {:<9} {:<9} {} members  {:<16} {}",
            word("batch_id"),
            word("trigger"),
            word("status"),
            batch["member_count"],
            word("code"),
            batch["merge_request"]["url"].as_str().unwrap_or("-"),
        );
    }
    heading(&format!("git log --stat {TARGET_BRANCH}"));
    println!("{}", stack.stand_in()?.git(&["log", "--stat", "--stat-width=100", TARGET_BRANCH])?);
    let tree = stack.stand_in()?.git(&["ls-tree", "-r", "--name-only", TARGET_BRANCH])?;
    // The path template percent-encodes what a file name should not hold.
    let tree: Vec<String> = tree.lines().map(|path| path.replace("%40", "@")).collect();
    for path in LANDED {
        ensure!(tree.iter().any(|found| found == path), "{path} is not on {TARGET_BRANCH}: {tree:?}");
    }
    for path in ABSENT {
        ensure!(!tree.iter().any(|found| found == path), "{path} is on {TARGET_BRANCH} and must not be");
    }
    println!();
    say(format!("{TARGET_BRANCH} holds exactly what was granted: {} files, none of the revoked or refused", LANDED.len()));
    Ok(())
}

/// The addresses, as soon as everything answers.
pub fn tell_addresses(stack: &Stack) {
    say(format!("the API:         {}", stack.api));
    say(format!("the forge:       {}", stack.forge.url));
    say(format!("the local cloud: {}", stack.cloud.endpoint));
}

/// Where a person can go on from here.
pub fn show_addresses(stack: &Stack) -> Result<()> {
    let api = &stack.api;
    heading("it is all yours (rounds and sweeps run each minute; Ctrl-C ends everything)");
    println!(
        "
  a request of your own, then its state:
    curl -sS -H 'Idempotency-Key: mine-1' -H 'Content-Type: application/json' \\
      -d '{{\"subject_id\":\"me@example.com\",\"target_key\":\"billing-db\",\"action\":\"grant\"}}' \\
      '{api}/requests'
    curl -sS '{api}/requests?subject=me@example.com'
  a round now, instead of within a minute:
    curl -sS -d '{{}}' {cloud}/2015-03-31/functions/{claim_round}/invocations
  everything that waits or runs:
    curl -sS '{api}/status'
  the forge:        {forge}
  the repository:   git --git-dir {repository} log --stat {TARGET_BRANCH}
  the database:     {database}
  the local cloud:  {cloud}  (AWS_ENDPOINT_URL for any AWS client, credentials test/test)
",
        cloud = stack.cloud.endpoint,
        claim_round = stack.function("claim-round"),
        forge = stack.forge.url,
        repository = stack.stand_in()?.repository().display(),
        database = stack.database_url,
    );
    Ok(())
}
