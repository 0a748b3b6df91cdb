//! Removes now what the sweep would remove in the course of time.

use std::time::Instant;

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde_json::json;
use shared::StoreError;
use shared::transactions::command::{Change, CommandOutcome, Concerns};
use shared::transactions::purge::{PurgeContents, PurgeDated, Purged};
use shared::transactions::record_command::RecordCommand;

use crate::answer::Answer;
use crate::fields::Fields;

pub async fn purge<F: Forge, E: Outbound>(relay: &Relay<F, E>, mut fields: Fields, stop_at: Instant) -> Result<Answer, StoreError> {
    let command = fields.command("purge");
    let problems = fields.end(Vec::new());
    let (Some(command), true) = (command, problems.is_empty()) else {
        return Ok(Answer::malformed(problems));
    };
    let (purged, finished) = all(relay, command.dry_run, stop_at).await?;
    let after = json!({
        "removed": {
            "idempotency_records": purged.idempotency, "outbox_rows": purged.outbox, "contents": purged.contents,
            "paths": purged.paths, "waiting_rows": purged.waiting_rows,
        },
        "finished": finished,
    });
    if purged.total() == 0 {
        return Ok(Answer::already(after));
    }
    let change = Change { before: json!(null), after };
    // Each unit is committed by itself, and so is the record of them all.
    let outcome: CommandOutcome<std::convert::Infallible> =
        relay.store.run(&RecordCommand { command, concerns: Concerns::default(), change }).await?;
    Ok(Answer::from_outcome(outcome, |never| match never {}))
}

/// `true`: there is nothing left to remove. A rehearsal counts at most one unit of what goes by its date.
async fn all<F: Forge, E: Outbound>(relay: &Relay<F, E>, dry_run: bool, stop_at: Instant) -> Result<(Purged, bool), StoreError> {
    let mut all = Purged::default();
    loop {
        let dated = relay.store.run(&PurgeDated { dry_run }).await?;
        all.add(&dated);
        if dry_run || dated.total() == 0 {
            break;
        }
        if Instant::now() >= stop_at {
            return Ok((all, false));
        }
    }
    let mut after = None;
    loop {
        let contents = relay.store.run(&PurgeContents { after, dry_run }).await?;
        all.add(&contents);
        match contents.next {
            None => return Ok((all, true)),
            Some(_) if Instant::now() >= stop_at => return Ok((all, false)),
            Some(next) => after = Some(next),
        }
    }
}
