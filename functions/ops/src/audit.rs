//! Looks whether the invariants hold, and stops the rounds where they do not.
//!
//! Each look sees the database as it was at one moment. A breach counts when a second look sees it too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde_json::{Value, json};
use shared::StoreError;
use shared::audit::INVARIANTS;
use shared::ids::PartitionKey;
use shared::read::breaches::partitions_of;
use shared::read::partitions::partitions;
use shared::store::Store;
use shared::transactions::command::{Change, Command, CommandOutcome, Concerns, REASON_MAX};
use shared::transactions::pause::{Pause, Rounds};
use shared::transactions::record_command::RecordCommand;

use crate::answer::Answer;
use crate::fields::Fields;

/// Between the two looks: what a unit in flight had left is gone by then.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);
/// All invariants over the whole history.
const LOOK_LIMIT: Duration = Duration::from_secs(25);
/// Ids of one invariant's breaches that are read and told.
const IDS_MAX: usize = 100;

/// What broke, by the position of its invariant.
type Breaches = BTreeMap<usize, BTreeSet<String>>;

pub async fn audit<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields) -> Result<Answer, StoreError> {
    let command = fields.command("audit");
    let problems = fields.end(Vec::new());
    let (Some(command), true) = (command, problems.is_empty()) else {
        return Ok(Answer::malformed(problems));
    };
    let store = &relay.store;
    let first = look(store).await?;
    if first.is_empty() {
        return Ok(told(Answer::read("breaches", json!([])), &Breaches::new(), &[]));
    }
    tokio::time::sleep(SECOND_LOOK_AFTER).await;
    let second = look(store).await?;
    let confirmed = seen_twice(&first, &second);
    let passing = first.keys().filter(|at| !confirmed.contains_key(at)).map(|at| INVARIANTS[*at].id).collect::<Vec<_>>();
    if confirmed.is_empty() {
        return Ok(told(Answer::read("breaches", json!([])), &confirmed, &passing));
    }
    for (at, ids) in &confirmed {
        tracing::error!(
            event = "alarm",
            alarm = "invariant_broken",
            invariant = INVARIANTS[*at].id,
            breaches = ids.len(),
            first = ids.first()
        );
    }
    let (stopped, is_new) = stop_rounds(store, &confirmed, &command).await?;
    let after = json!({ "broken": names(&confirmed), "paused": stopped });
    if !is_new {
        return Ok(told(Answer::already(after), &confirmed, &passing).with("paused", json!(stopped)));
    }
    let change = Change { before: Value::Null, after };
    let outcome: CommandOutcome<std::convert::Infallible> =
        store.run(&RecordCommand { command, concerns: Concerns::default(), change }).await?;
    Ok(told(Answer::from_outcome(outcome, |never| match never {}), &confirmed, &passing).with("paused", json!(stopped)))
}

async fn look(store: &Store) -> Result<Breaches, StoreError> {
    let statements: Vec<String> = INVARIANTS.iter().map(|one| format!("{} LIMIT {}", one.sql, IDS_MAX + 1)).collect();
    let found = store.snapshot::<(String,)>(&statements, LOOK_LIMIT).await?;
    let by_invariant = found.into_iter().map(|rows| rows.into_iter().map(|(id,)| id).collect::<BTreeSet<String>>());
    Ok(by_invariant.enumerate().filter(|(_, ids)| !ids.is_empty()).collect())
}

fn seen_twice(first: &Breaches, second: &Breaches) -> Breaches {
    let both = |(at, ids): (&usize, &BTreeSet<String>)| {
        let again: BTreeSet<String> = ids.intersection(second.get(at)?).cloned().collect();
        (!again.is_empty()).then_some((*at, again))
    };
    first.iter().filter_map(both).collect()
}

fn names(breaches: &Breaches) -> Vec<&'static str> {
    breaches.keys().map(|at| INVARIANTS[*at].id).collect()
}

/// Pauses what is concerned, and all open partitions where that cannot be told. Answers what is paused now, and
/// whether any of it was not before.
async fn stop_rounds(store: &Store, breaches: &Breaches, command: &Command) -> Result<(Vec<PartitionKey>, bool), StoreError> {
    let concerned = concerned(store, breaches).await?;
    let reason: String = format!("the audit found broken: {}; see it with audit and dry_run", names(breaches).join(", "));
    let reason: String = reason.chars().take(REASON_MAX).collect();
    let (mut stopped, mut is_new) = (Vec::new(), false);
    for partition in partitions(store).await? {
        if partition.closed_at.is_some() || concerned.as_ref().is_some_and(|keys| !keys.contains(&partition.key)) {
            continue;
        }
        // A pause without an end stands: whoever ordered it has a reason that must not be lost.
        if !partition.pause.as_ref().is_some_and(|pause| pause.holds && pause.until.is_none()) {
            let command = Command::new("pause", command.actor.clone(), reason.clone(), command.dry_run);
            let unit = Pause { partition: partition.key.clone(), rounds: Rounds::Paused { until: None }, command };
            if let CommandOutcome::Refused(_) | CommandOutcome::Preempted = store.run(&unit).await? {
                continue; // A partition never goes; one that changes at this very moment is found by the next audit.
            }
            is_new = true;
        }
        stopped.push(partition.key);
    }
    Ok((stopped, is_new))
}

/// `None`: some breach does not lead to a partition.
async fn concerned(store: &Store, breaches: &Breaches) -> Result<Option<BTreeSet<PartitionKey>>, StoreError> {
    let mut all = BTreeSet::new();
    for id in breaches.values().flatten() {
        let found = partitions_of(store, id).await?;
        if found.is_empty() {
            return Ok(None);
        }
        all.extend(found);
    }
    Ok(Some(all))
}

fn told(answer: Answer, breaches: &Breaches, passing: &[&str]) -> Answer {
    let shown: Vec<Value> = breaches
        .iter()
        .map(|(at, ids)| {
            let invariant = INVARIANTS[*at];
            let told: Vec<&String> = ids.iter().take(IDS_MAX).collect();
            json!({ "invariant": invariant.id, "sentence": invariant.sentence, "ids": told, "more": ids.len() > IDS_MAX })
        })
        .collect();
    answer.with("breaches", shown.into()).with("checked", INVARIANTS.len().into()).with("seen_once", json!(passing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(of: &[(usize, &[&str])]) -> Breaches {
        of.iter().map(|(at, ids)| (*at, ids.iter().map(|id| (*id).to_owned()).collect())).collect()
    }

    #[test]
    fn a_breach_counts_only_if_both_looks_see_the_same_row() {
        let first = breaches(&[(0, &["a", "b"]), (1, &["c"]), (2, &["d"])]);
        let second = breaches(&[(0, &["b", "x"]), (2, &["e"]), (3, &["f"])]);
        assert_eq!(seen_twice(&first, &second), breaches(&[(0, &["b"])]));
    }
}
