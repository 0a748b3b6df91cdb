//! What leaves Muster towards AWS: domain events, and rounds that follow at once.

use std::future::Future;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use shared::ids::PartitionKey;
use tokio::sync::OnceCell;

use crate::queue::{Queue, causes};

const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const OPERATION_LIMIT: Duration = Duration::from_secs(10);

/// Takes events and starts rounds, at least once each.
pub trait Outbound: Send + Sync {
    /// Publishes `(id, body)` pairs. Answers one result for each, in their order; an error where none was sent.
    fn publish(&self, events: &[(String, String)]) -> impl Future<Output = Result<Vec<Result<(), String>>, String>> + Send;

    /// Starts a round of one partition and does not wait for it.
    fn start_round(&self, partition: &PartitionKey) -> impl Future<Output = Result<(), String>> + Send;

    /// What is wrong with the way out, in full sentences; nothing is sent. Empty where all is well.
    fn problems(&self) -> impl Future<Output = Vec<String>> + Send;
}

/// The queue `events` and the function `claim-round`.
pub struct Cloud {
    events: Queue,
    claim_round_function: String,
    client: OnceCell<Client>,
}

impl Cloud {
    /// Nothing is connected before the first use.
    pub fn new(events: Queue, claim_round_function: impl Into<String>) -> Self {
        Self { events, claim_round_function: claim_round_function.into(), client: OnceCell::new() }
    }

    async fn client(&self) -> &Client {
        let building = async || {
            let config = aws_config::defaults(BehaviorVersion::v2026_01_12()).load().await;
            let limits = TimeoutConfig::builder().connect_timeout(CONNECT_LIMIT).operation_timeout(OPERATION_LIMIT).build();
            Client::from_conf(aws_sdk_lambda::config::Builder::from(&config).timeout_config(limits).build())
        };
        self.client.get_or_init(building).await
    }
}

impl Outbound for Cloud {
    async fn publish(&self, events: &[(String, String)]) -> Result<Vec<Result<(), String>>, String> {
        let results = self.events.send_batch(events).await;
        match results.first() {
            Some(Err(error)) if results.iter().all(Result::is_err) => Err(error.to_string()),
            _ => Ok(results.into_iter().map(|result| result.map_err(|error| error.to_string())).collect()),
        }
    }

    async fn problems(&self) -> Vec<String> {
        self.events.problems().await
    }

    async fn start_round(&self, partition: &PartitionKey) -> Result<(), String> {
        let event = follow_up_event(partition).to_string();
        let call = self.client().await.invoke().function_name(&self.claim_round_function).invocation_type(InvocationType::Event);
        let answer = call.payload(Blob::new(event.into_bytes())).send().await;
        answer.map(drop).map_err(|error| {
            format!("the function {} could not be invoked ({}); it is tried again", self.claim_round_function, causes(&error))
        })
    }
}

/// The event that `claim-round` takes for a follow-up: like a schedule's, for one partition.
pub fn follow_up_event(partition: &PartitionKey) -> serde_json::Value {
    serde_json::json!({ "source": "muster", "detail-type": "Follow-up Round", "detail": { "partition": partition } })
}
