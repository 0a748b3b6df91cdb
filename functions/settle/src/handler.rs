//! Settles the batches that status events speak of.
//!
//! An event is only a hint to look: what is true is read from the forge, from Git and from the database.
//! A record that may succeed later is reported as failed; garbage is acknowledged and never fails its neighbours.

use std::collections::BTreeMap;
use std::time::Instant;

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use adapters::settlement::{PATIENCE, Progress, settle};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use serde::Deserialize;
use serde_json::Value;
use shared::StoreError;
use shared::ids::{BRANCH_ROOT, BatchId, parse_branch};
use shared::read::round;

/// What `webhook` sends. Members it does not need are not read, so that a later version may add some.
#[derive(Debug, Deserialize)]
struct StatusEvent {
    v: u32,
    project_id: u64,
    mr_iid: Option<u64>,
    #[serde(default)]
    source_branch: Option<String>,
}

/// What one record asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Batch(BatchId),
    /// Acknowledged: nothing of ours, or nothing that any retry would make readable.
    Nothing,
}

/// Answers which records are to be delivered again.
pub async fn handle<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    event: Value,
    stop_at: Instant,
) -> Result<SqsBatchResponse, lambda_runtime::Error> {
    // An event that is no SQS event at all has no record to report.
    let event: SqsEvent =
        serde_json::from_value(event).map_err(|why| format!("the event is not an SQS event ({why}); nothing was settled"))?;
    let mut response = SqsBatchResponse::default();
    let mut settled: BTreeMap<BatchId, bool> = BTreeMap::new();
    for record in &event.records {
        let done = match asked(relay, record).await {
            Ok(Asked::Nothing) => true,
            Ok(Asked::Batch(batch)) => match settled.get(&batch) {
                Some(done) => *done,
                None => {
                    let done = settle_one(relay, batch, stop_at).await;
                    settled.insert(batch, done);
                    done
                }
            },
            Err(error) => {
                tracing::warn!(event = "record_postponed", message_id = ?record.message_id, %error);
                false
            }
        };
        match record.message_id.as_deref() {
            Some(id) if !done && !id.is_empty() => response.add_failure(id),
            // An empty identifier would make the whole batch fail, so such a record is left to the sweep.
            _ if !done => tracing::error!(event = "alarm", alarm = "record_without_id"),
            _ => {}
        }
    }
    Ok(response)
}

async fn settle_one<F: Forge, E: Outbound>(relay: &Relay<F, E>, batch: BatchId, stop_at: Instant) -> bool {
    if Instant::now() >= stop_at {
        return false;
    }
    match settle(relay, batch, PATIENCE, stop_at).await {
        Ok(progress) => {
            tracing::info!(event = "settlement", %batch, ?progress);
            progress != Progress::Unreachable
        }
        Err(error) => {
            tracing::warn!(event = "settlement_postponed", %batch, %error);
            false
        }
    }
}

async fn asked<F: Forge, E: Outbound>(relay: &Relay<F, E>, record: &SqsMessage) -> Result<Asked, StoreError> {
    let event = match serde_json::from_str::<StatusEvent>(record.body.as_deref().unwrap_or_default()) {
        Ok(event) if event.v == 1 => event,
        Ok(event) => {
            tracing::error!(event = "alarm", alarm = "unreadable_status_event", message_id = ?record.message_id, version = event.v);
            return Ok(Asked::Nothing);
        }
        Err(why) => {
            tracing::error!(event = "alarm", alarm = "unreadable_status_event", message_id = ?record.message_id, %why);
            return Ok(Asked::Nothing);
        }
    };
    let branch = event.source_branch.as_deref().unwrap_or_default();
    // By the token first: the merge request may not be recorded yet.
    if let Some((_, token)) = parse_branch(branch) {
        let found = round::find_by_token(&relay.store, token).await?;
        if found.is_none() {
            // A batch that was lost in a failover, or a forger. Nothing of ours will ever settle it.
            tracing::error!(event = "alarm", alarm = "unknown_token", branch, project_id = event.project_id, mr_iid = event.mr_iid);
        }
        return Ok(found.map_or(Asked::Nothing, Asked::Batch));
    }
    if branch.starts_with(BRANCH_ROOT) {
        tracing::error!(event = "alarm", alarm = "unknown_token", branch, project_id = event.project_id, mr_iid = event.mr_iid);
        return Ok(Asked::Nothing);
    }
    let Some(iid) = event.mr_iid else { return Ok(Asked::Nothing) };
    let found = round::find_by_merge_request(&relay.store, event.project_id, iid).await?;
    Ok(found.map_or(Asked::Nothing, Asked::Batch))
}
