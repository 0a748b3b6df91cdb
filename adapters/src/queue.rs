//! SQS: the only way in which Muster hands something on without waiting for its reader.

mod examine;

use std::ops::Range;
use std::time::Duration;

use aws_config::BehaviorVersion;
pub use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::SdkError;
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use tokio::sync::OnceCell;

/// Without a route to SQS (a VPC without an endpoint) a call would otherwise hang until the function is killed.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const ATTEMPT_LIMIT: Duration = Duration::from_secs(3);
/// All attempts together; below the shortest function time-out (10 s), so that a caller still gets an answer.
const OPERATION_LIMIT: Duration = Duration::from_secs(8);
/// SQS's limits on one SendMessageBatch.
const BATCH_ENTRIES_MAX: usize = 10;
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// A message is not known to be on its queue. Sending it again is right: readers deduplicate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    #[error("the queue {queue} could not be reached ({detail}); the message may be missing there, send it again")]
    Unreachable { queue: String, detail: String },
    #[error("the queue {queue} refused the message ({detail}); look at its policy and limits, then send it again")]
    Refused { queue: String, detail: String },
    #[error("the message for {queue} has {bytes} bytes and a queue takes {BATCH_BYTES_MAX}; it was not sent and must be made smaller")]
    TooLarge { queue: String, bytes: usize },
}

/// One SQS queue. Credentials, region and endpoint are read at the first use, so that a cold start does not wait.
#[derive(Debug)]
pub struct Queue {
    url: String,
    client: OnceCell<Client>,
}

impl Queue {
    pub fn connect(url: impl Into<String>) -> Self {
        Self { url: url.into(), client: OnceCell::new() }
    }

    /// A queue reached by a given AWS configuration, such as a test's.
    pub fn with_config(url: impl Into<String>, config: &SdkConfig) -> Self {
        Self { url: url.into(), client: OnceCell::new_with(Some(client(config))) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    async fn client(&self) -> &Client {
        let building = async || client(&aws_config::defaults(BehaviorVersion::v2026_01_12()).load().await);
        self.client.get_or_init(building).await
    }

    /// # Errors
    /// If the message is not known to be on the queue.
    pub async fn send(&self, body: impl Into<String>) -> Result<(), QueueError> {
        let body = body.into();
        if body.len() > BATCH_BYTES_MAX {
            return Err(self.too_large(&body));
        }
        let sent = self.client().await.send_message().queue_url(&self.url).message_body(body).send().await;
        sent.map(drop).map_err(|error| self.explain(error))
    }

    /// Sends `(id, body)` pairs in as few calls as SQS allows, and answers one result for each in their order.
    /// After a call that SQS did not answer, no further one is made: the rest has the same error.
    pub async fn send_batch(&self, messages: &[(String, String)]) -> Vec<Result<(), QueueError>> {
        let mut results = Vec::with_capacity(messages.len());
        let mut unreachable: Option<QueueError> = None;
        for range in calls(messages) {
            let chunk = &messages[range];
            if let [(_, body)] = chunk
                && body.len() > BATCH_BYTES_MAX
            {
                results.push(Err(self.too_large(body)));
                continue;
            }
            if let Some(error) = &unreachable {
                results.extend(chunk.iter().map(|_| Err(error.clone())));
                continue;
            }
            match self.send_one_call(chunk).await {
                Ok(answers) => results.extend(answers),
                Err(error) => {
                    results.extend(chunk.iter().map(|_| Err(error.clone())));
                    unreachable = Some(error);
                }
            }
        }
        results
    }

    /// What is wrong with the queue, as far as its attributes may be read; nothing is sent.
    pub async fn problems(&self) -> Vec<String> {
        let call = self.client().await.get_queue_attributes().queue_url(&self.url).attribute_names(QueueAttributeName::All);
        match call.send().await.map_err(|error| causes(&error)) {
            Ok(answer) => examine::problems_of(&self.url, answer.attributes()),
            Err(detail) => vec![format!("the queue {} could not be examined ({detail}), so whether events arrive is not known", self.url)],
        }
    }

    async fn send_one_call(&self, chunk: &[(String, String)]) -> Result<Vec<Result<(), QueueError>>, QueueError> {
        let mut call = self.client().await.send_message_batch().queue_url(&self.url);
        for (at, (_, body)) in chunk.iter().enumerate() {
            // Our ids are longer than SQS takes: an entry goes by its place.
            let entry = SendMessageBatchRequestEntry::builder().id(at.to_string()).message_body(body).build();
            call = call.entries(entry.map_err(|why| self.refused(why.to_string()))?);
        }
        let answer = call.send().await.map_err(|error| self.explain(error))?;
        // An entry that the answer does not name is not known to be sent.
        let mut results: Vec<_> = chunk.iter().map(|_| Err(self.refused("it is not named in the answer".into()))).collect();
        for sent in answer.successful() {
            if let Some(result) = place(sent.id(), &mut results) {
                *result = Ok(());
            }
        }
        for failed in answer.failed() {
            let detail = format!("{} {}", failed.code(), failed.message().unwrap_or_default());
            tracing::warn!(queue = self.url, code = failed.code(), "an entry of a batch was refused");
            if let Some(result) = place(failed.id(), &mut results) {
                *result = Err(self.refused(detail));
            }
        }
        Ok(results)
    }

    fn too_large(&self, body: &str) -> QueueError {
        QueueError::TooLarge { queue: self.url.clone(), bytes: body.len() }
    }

    fn refused(&self, detail: String) -> QueueError {
        QueueError::Refused { queue: self.url.clone(), detail }
    }

    fn explain<E: std::error::Error + Send + Sync + 'static>(&self, error: SdkError<E>) -> QueueError {
        let detail = causes(&error);
        match error {
            SdkError::ServiceError(_) => self.refused(detail),
            _ => QueueError::Unreachable { queue: self.url.clone(), detail },
        }
    }
}

fn client(config: &SdkConfig) -> Client {
    let limits = TimeoutConfig::builder()
        .connect_timeout(CONNECT_LIMIT)
        .operation_attempt_timeout(ATTEMPT_LIMIT)
        .operation_timeout(OPERATION_LIMIT)
        .build();
    Client::from_conf(aws_sdk_sqs::config::Builder::from(config).timeout_config(limits).build())
}

/// The error and what caused it, each in its own words once.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !told.contains(&words) {
            told = format!("{told}: {words}");
        }
        cause = error.source();
    }
    told
}

fn place<'r, T>(id: &str, results: &'r mut [T]) -> Option<&'r mut T> {
    id.parse::<usize>().ok().and_then(|at| results.get_mut(at))
}

/// Cuts messages into calls of at most ten entries and 1 MiB. One that is too large alone is alone in its range.
fn calls(messages: &[(String, String)]) -> Vec<Range<usize>> {
    let mut calls: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (at, (_, body)) in messages.iter().enumerate() {
        match calls.last_mut() {
            Some(call) if call.len() < BATCH_ENTRIES_MAX && bytes + body.len() <= BATCH_BYTES_MAX => {
                call.end = at + 1;
                bytes += body.len();
            }
            _ => {
                calls.push(at..at + 1);
                bytes = body.len();
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(sizes: &[usize]) -> Vec<(String, String)> {
        sizes.iter().map(|size| ("id".to_owned(), "x".repeat(*size))).collect()
    }

    #[test]
    fn a_call_holds_no_more_than_sqs_takes() {
        assert!(calls(&[]).is_empty());
        assert_eq!(calls(&messages(&[1; 25])), [0..10, 10..20, 20..25]);
        let half = BATCH_BYTES_MAX / 2;
        assert_eq!(calls(&messages(&[half, half, 1])), [0..2, 2..3]);
        assert_eq!(calls(&messages(&[1, BATCH_BYTES_MAX + 1, 1])), [0..1, 1..2, 2..3]);
    }

    #[tokio::test]
    async fn a_message_that_no_queue_takes_fails_alone_and_unsent() {
        let config = SdkConfig::builder().behavior_version(BehaviorVersion::v2026_01_12()).build();
        let queue = Queue::with_config("http://127.0.0.1:9/q", &config);
        let error = queue.send("x".repeat(BATCH_BYTES_MAX + 1)).await.expect_err("too large");
        assert!(matches!(error, QueueError::TooLarge { .. }), "{error}");
        let results = queue.send_batch(&messages(&[BATCH_BYTES_MAX + 1])).await;
        assert!(matches!(results[..], [Err(QueueError::TooLarge { .. })]), "{results:?}");
    }
}
