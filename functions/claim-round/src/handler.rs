//! Runs rounds: claims what waits, opens its merge request, and says for each partition how it came out.
//!
//! Every outcome is an answer. An error would be retried by whatever invoked us, and a round is never retried.

use std::time::{Duration, Instant};

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::StoreError;
use shared::ids::{BatchId, ClaimToken, OperationId, PartitionKey, Principal};
use shared::read::round;
use shared::read::waiting::{Prospect, open_partitions, prospect};
use shared::state::Trigger;
use shared::transactions::claim::{Claim, ClaimOutcome};
use shared::transactions::deliveries::Scope;

/// A gate that is busy is tried again for this long before `contended` is answered.
const CONTENDED_FOR: Duration = Duration::from_secs(2);
/// A merge request that has just been opened is rarely ready to be armed; it is asked again for this long.
const ARMING_PATIENCE: Duration = Duration::from_secs(10);

/// Manual payload. `{}` and null mean: every partition.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manual {
    partition: Option<PartitionKey>,
    max_requests: Option<u32>,
    requested_by: Option<Principal>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Serialize, PartialEq)]
pub struct Answer {
    pub rounds: Vec<Round>,
    /// What is wrong with the payload; then no round was run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

#[derive(Debug, Serialize, PartialEq)]
pub struct Round {
    pub partition: PartitionKey,
    pub outcome: &'static str,
    /// The batch claimed, or the holder of the slot.
    pub batch_id: Option<BatchId>,
    pub members: Vec<OperationId>,
    pub merge_request: Option<MergeRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Serialize, PartialEq)]
pub struct MergeRequest {
    pub iid: String,
    pub url: String,
}

impl Round {
    fn new(partition: &PartitionKey, outcome: &'static str) -> Self {
        Self { partition: partition.clone(), outcome, batch_id: None, members: Vec::new(), merge_request: None, reason: None, error: None }
    }

    fn unavailable(partition: &PartitionKey, error: &StoreError) -> Self {
        Self { error: Some(error.to_string()), ..Self::new(partition, "unavailable") }
    }
}

struct Order {
    trigger: Trigger,
    manual: Manual,
}

/// Runs a round in the partitions that `event` names.
pub async fn handle<F: Forge, E: Outbound>(relay: &Relay<F, E>, event: Value, stop_at: Instant) -> Result<Answer, lambda_runtime::Error> {
    let order = match read(event) {
        Ok(order) => order,
        Err(problem) => return Ok(Answer { rounds: Vec::new(), problems: vec![problem] }),
    };
    let partitions = match &order.manual.partition {
        Some(partition) => vec![partition.clone()],
        None => match open_partitions(&relay.store).await {
            Ok(partitions) => partitions,
            Err(error) => {
                return Ok(Answer { rounds: vec![Round::unavailable(&PartitionKey::default_partition(), &error)], problems: Vec::new() });
            }
        },
    };
    let mut rounds = Vec::with_capacity(partitions.len());
    for partition in &partitions {
        let round = run(relay, partition, &order, stop_at).await.unwrap_or_else(|error| Round::unavailable(partition, &error));
        tracing::info!(event = "round", partition = %round.partition, outcome = round.outcome, batch = ?round.batch_id, members = round.members.len());
        rounds.push(round);
    }
    // Admission never waits for the queue: its events go out with the next round or sweep.
    if !order.manual.dry_run
        && let Err(error) = relay.drive(Scope::All, stop_at).await
    {
        tracing::warn!(event = "relay_unavailable", %error);
    }
    Ok(Answer { rounds, problems: Vec::new() })
}

/// A schedule sends an event with `detail-type`, and so does our own relay for a round that follows at once;
/// everything else is a person's or a program's own payload.
fn read(event: Value) -> Result<Order, String> {
    if event.get("detail-type").is_some() {
        let followed = event.get("detail").filter(|_| event["source"] == "muster").map(|detail| detail["partition"].clone());
        let Some(partition) = followed else { return Ok(Order { trigger: Trigger::Scheduled, manual: Manual::default() }) };
        let partition =
            serde_json::from_value(partition).map_err(|why| format!("the follow-up names no partition: {why}; no round was run"))?;
        return Ok(Order { trigger: Trigger::FollowUp, manual: Manual { partition: Some(partition), ..Manual::default() } });
    }
    let manual = if event.is_null() { Ok(Manual::default()) } else { serde_json::from_value::<Manual>(event) };
    let manual = manual.map_err(|why| {
        format!("the payload is not one of {{}}, null or {{\"partition\",\"max_requests\",\"requested_by\",\"dry_run\"}}: {why}; no round was run")
    })?;
    if manual.max_requests == Some(0) {
        return Err("max_requests is 0; leave it out, or give at least 1; no round was run".into());
    }
    Ok(Order { trigger: Trigger::Manual, manual })
}

async fn run<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    partition: &PartitionKey,
    order: &Order,
    stop_at: Instant,
) -> Result<Round, StoreError> {
    // Without a lock first: an idle round ends here, and never takes the slot only to give it back.
    match prospect(&relay.store, partition, order.manual.max_requests).await? {
        Prospect::UnknownPartition => return Ok(Round::new(partition, "unknown_partition")),
        Prospect::Paused { reason } => return Ok(Round { reason: Some(reason), ..Round::new(partition, "paused") }),
        Prospect::SlotOccupied { batch } => return occupied(relay, partition, batch).await,
        Prospect::NothingToClaim => return Ok(Round::new(partition, "nothing_to_claim")),
        Prospect::Claimable { members } if order.manual.dry_run => return Ok(Round { members, ..Round::new(partition, "would_claim") }),
        Prospect::Claimable { .. } => {}
    }
    match claim(relay, partition, order).await? {
        ClaimOutcome::Claimed { batch, members } => opened(relay, Round::new(partition, "claimed"), batch, members, stop_at).await,
        ClaimOutcome::AlreadyClaimed { batch, members } => {
            opened(relay, Round::new(partition, "already_claimed"), batch, members, stop_at).await
        }
        ClaimOutcome::SlotOccupied { batch } => occupied(relay, partition, batch).await,
        ClaimOutcome::Paused { reason } => Ok(Round { reason: Some(reason), ..Round::new(partition, "paused") }),
        other @ (ClaimOutcome::NothingToClaim
        | ClaimOutcome::HeldBack
        | ClaimOutcome::Contended
        | ClaimOutcome::UnknownPartition
        | ClaimOutcome::Preempted) => Ok(Round::new(partition, other.name())),
    }
}

async fn claim<F: Forge, E: Outbound>(relay: &Relay<F, E>, partition: &PartitionKey, order: &Order) -> Result<ClaimOutcome, StoreError> {
    let caller = order.manual.requested_by.clone().map_or_else(|| Principal::parse(order.trigger.name()), Ok);
    let unit = Claim {
        partition: partition.clone(),
        token: ClaimToken::random(),
        max_requests: order.manual.max_requests,
        trigger: order.trigger,
        requested_by: caller.map_err(|why| StoreError::corrupt(why.to_string()))?,
    };
    let patient_until = Instant::now() + CONTENDED_FOR;
    loop {
        let outcome = match relay.store.run(&unit).await {
            Err(StoreError::LockWait) => ClaimOutcome::Contended,
            outcome => outcome?,
        };
        if outcome != ClaimOutcome::Contended || Instant::now() >= patient_until {
            return Ok(outcome);
        }
        tokio::time::sleep(Duration::from_millis(rand::random_range(10..100))).await;
    }
}

async fn occupied<F: Forge, E: Outbound>(relay: &Relay<F, E>, partition: &PartitionKey, batch: BatchId) -> Result<Round, StoreError> {
    let merge_request = merge_request(relay, batch).await?;
    Ok(Round { batch_id: Some(batch), merge_request, ..Round::new(partition, "slot_occupied") })
}

/// Performs what the claim caused. Whatever fails here is in the outbox, and the sweep goes on with it.
async fn opened<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    round: Round,
    batch: BatchId,
    members: Vec<OperationId>,
    stop_at: Instant,
) -> Result<Round, StoreError> {
    let error = relay.drive_batch(batch, ARMING_PATIENCE, stop_at).await.err().map(|error| error.to_string());
    let merge_request = merge_request(relay, batch).await.unwrap_or_default();
    Ok(Round { batch_id: Some(batch), members, merge_request, error, ..round })
}

async fn merge_request<F: Forge, E: Outbound>(relay: &Relay<F, E>, batch: BatchId) -> Result<Option<MergeRequest>, StoreError> {
    let round = round::round(&relay.store, batch).await?;
    Ok(round.and_then(|round| Some(MergeRequest { iid: round.mr_iid?.to_string(), url: round.mr_url? })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_shape_of_payload_is_a_round_or_a_clear_no() {
        let trigger = |event: Value| read(event).map(|order| order.trigger);
        assert_eq!(trigger(json!(null)), Ok(Trigger::Manual));
        assert_eq!(trigger(json!({})), Ok(Trigger::Manual));
        assert_eq!(trigger(json!({"partition": "a", "max_requests": 3, "requested_by": "ops", "dry_run": true})), Ok(Trigger::Manual));
        assert_eq!(trigger(json!({"source": "aws.scheduler", "detail-type": "Scheduled Event"})), Ok(Trigger::Scheduled));
        for bad in [
            json!({"partition": ""}),
            json!({"partitions": "a"}),
            json!({"max_requests": -1}),
            json!({"max_requests": 0}),
            json!([1]),
            json!("x"),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }
}
