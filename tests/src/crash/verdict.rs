//! What went wrong in a cell: read from the database, from the forge's own list, from `git log`, and from what was published.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use local::gitlab::MrState;

use super::spool::events;
use super::story::Story;
use crate::journey::Journey;

/// Sentences, one for each breach; all empty where nothing went wrong.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Something did not come to its end.
    pub stuck: Vec<String>,
    /// Something happened twice.
    pub double: Vec<String>,
    /// Something is missing, or the books say what is not so.
    pub lost: Vec<String>,
}

impl Verdict {
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// Judges the world after recovery; `ahead_s` is how far the clock went meanwhile.
pub async fn of(journey: &Journey, story: Story, spool: &Path, ahead_s: i64) -> Verdict {
    let mut verdict = Verdict::default();
    look_at_the_database(journey, story, ahead_s, &mut verdict).await;
    look_at_the_forge(journey, &mut verdict);
    look_at_git(journey, story, &mut verdict).await;
    look_at_the_events(journey, spool, &mut verdict).await;
    verdict
}

async fn look_at_the_database(journey: &Journey, story: Story, ahead_s: i64, verdict: &mut Verdict) {
    let world = &journey.world;
    for (table, what) in [
        ("operation WHERE status IN (1, 2)", "requests that have not ended"),
        ("merge_batch WHERE status IN (1, 4)", "batches that are active"),
        ("outbox WHERE delivered_at IS NULL AND given_up_at IS NULL", "effects that are still to be performed"),
        ("outbox WHERE given_up_at IS NOT NULL", "effects that were given up"),
    ] {
        match world.count(table).await {
            0 => {}
            count => verdict.stuck.push(format!("{count} {what}, {ahead_s} s later")),
        }
    }
    let found = world.count("operation").await;
    match found.cmp(&story.operations()) {
        std::cmp::Ordering::Less => verdict.lost.push(format!("{found} requests instead of {}", story.operations())),
        std::cmp::Ordering::Greater => verdict.double.push(format!("{found} requests instead of {}", story.operations())),
        std::cmp::Ordering::Equal => {}
    }
    for (subject, wanted, _) in story.wanted() {
        let state: Option<i64> = world
            .rows::<(i64,)>("SELECT status FROM binding WHERE subject_id = ? AND target_key = 'db'", (subject,))
            .await
            .first()
            .map(|(code,)| *code);
        let state = state.map(|code| shared::state::BindingStatus::from_code(code).expect("a known state").name());
        if state != Some(*wanted) {
            verdict.lost.push(format!("the access of {subject} is {state:?} instead of {wanted}"));
        }
    }
    verdict.lost.extend(world.breaches().await);
}

/// A late call may open a merge request for a batch that is over; it must be closed then, and none of a batch may merge twice.
fn look_at_the_forge(journey: &Journey, verdict: &mut Verdict) {
    let mut by_branch: BTreeMap<String, u32> = BTreeMap::new();
    for found in journey.forge.merge_requests() {
        if found.state != MrState::Closed {
            *by_branch.entry(found.source_branch.clone()).or_default() += 1;
        }
        if matches!(found.state, MrState::Opened | MrState::Locked) {
            verdict.stuck.push(format!("!{} is still {:?}", found.iid, found.state));
        }
    }
    let doubled = by_branch.iter().filter(|(_, count)| **count > 1);
    verdict.double.extend(doubled.map(|(branch, count)| format!("{count} merge requests of {branch} are open or merged")));
}

async fn look_at_git(journey: &Journey, story: Story, verdict: &mut Verdict) {
    let log = journey.forge.git(&["log", "--no-merges", "--format=%B", "main"]).expect("a log");
    let operations: Vec<(String, i64)> = journey.world.rows("SELECT CAST(operation_id AS CHAR), status FROM operation", ()).await;
    const MERGED: i64 = 3;
    for (operation, status) in operations {
        let carried = log.lines().filter(|line| *line == format!("Request {operation}")).count();
        match (status == MERGED, carried) {
            (true, 1) | (false, 0) => {}
            (true, 0) => verdict.lost.push(format!("{operation} is MERGED, and no commit on main carries it")),
            (false, _) => verdict.lost.push(format!("{operation} is on main, and not MERGED")),
            (true, many) => verdict.double.push(format!("{operation} is carried by {many} commits on main")),
        }
    }
    for (subject, _, is_there) in story.wanted() {
        if journey.file_on_main(&format!("access/db/{subject}.json")).is_some() != *is_there {
            verdict.lost.push(format!("the file of {subject} should{} be on main", if *is_there { "" } else { " not" }));
        }
    }
}

/// Published at least once, recorded once: whoever reads goes by the id, so that two ids for one end would be two ends.
async fn look_at_the_events(journey: &Journey, spool: &Path, verdict: &mut Verdict) {
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for event in events(spool) {
        if let (Some("request.merged"), Some(operation), Some(id)) =
            (event["type"].as_str(), event["operation_id"].as_str(), event["id"].as_str())
        {
            told.entry(operation.to_owned()).or_default().insert(id.to_owned());
        }
    }
    // Those that a story begins with were told before.
    let merged = "SELECT CAST(operation_id AS CHAR) FROM outbox WHERE kind = 'publish' AND dedup_key LIKE 'request.merged:%' \
                  AND operation_id IS NOT NULL";
    for (operation,) in journey.world.rows::<(String,)>(merged, ()).await {
        let ids = told.get(&operation).map_or(0, BTreeSet::len);
        let was_told_before = journey.relay.outbound.bodies().iter().any(|body| body["operation_id"] == operation.as_str());
        match ids {
            0 if !was_told_before => verdict.lost.push(format!("nobody was told that {operation} is merged")),
            0 | 1 => {}
            many => verdict.double.push(format!("{operation} was told {many} times, under as many ids")),
        }
    }
}
