//! What a function is killed at: the state it finds, and where everything must have come to in the end.

use std::time::Duration;

use local::gitlab::{MrState, PipelinePlan};
use serde_json::{Value, json};

use super::plan::Function;
use crate::commands::{REQUESTER, grant, request};
use crate::deadline::until;
use crate::journey::Journey;

/// Far above every time limit of a batch.
const MUCH_LATER_S: i64 = 7_200;
/// Past the date of the grant that expires, and before delivered events are purged, which the invariants look for.
const THREE_DAYS_LATER_S: i64 = 3 * 86_400;
const BRIEF: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Story {
    /// `POST /requests`.
    Admit,
    /// A round opens the merge request of two requests.
    Round,
    /// A merge request was merged.
    Landed,
    /// The pipeline failed by one request of two.
    Convicted,
    /// A pipeline hangs for too long.
    TimedOut,
    /// An operator takes a batch apart.
    Requeued,
    /// An access expires, a branch has served, and a merge request nobody owns is open.
    Expired,
}

/// One invocation, and how many seconds ahead its clock is.
pub struct Invocation {
    pub function: Function,
    pub event: Value,
    pub ahead_s: i64,
}

/// A subject, the state of its binding in the end, and whether its file is on the target branch.
pub type Wanted = (&'static str, &'static str, bool);

impl Story {
    pub const ALL: [Self; 7] = [Self::Admit, Self::Round, Self::Landed, Self::Convicted, Self::TimedOut, Self::Requeued, Self::Expired];

    pub fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit: a request is sent",
            Self::Round => "claim-round: a merge request is opened",
            Self::Landed => "settle: it was merged",
            Self::Convicted => "settle: its pipeline failed",
            Self::TimedOut => "sweep: its pipeline hangs",
            Self::Requeued => "ops: a batch is taken apart",
            Self::Expired => "sweep: an access expires",
        }
    }

    /// Brings the world to the state in which the function is invoked.
    pub async fn prepare(self, journey: &Journey) -> Invocation {
        journey.forge.set_knobs(|knobs| {
            knobs.check_step_ms = 1;
            knobs.pipeline_appears_ms = 1;
        });
        journey.forge.set_pipeline(match self {
            Self::Convicted => PipelinePlan::FailIfPath { substring: "bad".into(), after: BRIEF },
            Self::TimedOut | Self::Requeued => PipelinePlan::Hang,
            _ => PipelinePlan::pass(BRIEF),
        });
        let invoke = |function, event| Invocation { function, event, ahead_s: 0 };
        match self {
            Self::Admit => invoke(Function::Admit, post("alice")),
            Self::Round => {
                wait_for(journey, &["alice", "bob"]).await;
                invoke(Function::ClaimRound, json!({ "detail-type": "Scheduled Event" }))
            }
            Self::Landed => {
                wait_for(journey, &["alice", "bob"]).await;
                journey.claimed().await;
                until_it_is(journey, MrState::Merged).await;
                invoke(Function::Settle, hint(journey).await)
            }
            Self::Convicted => {
                wait_for(journey, &["bad", "good"]).await;
                journey.claimed().await;
                until("a failed pipeline", async || {
                    let failed = |pipeline: &local::gitlab::PipelineView| pipeline.status == "failed";
                    journey.forge.merge_requests()[0].pipeline.as_ref().is_some_and(failed).then_some(())
                })
                .await;
                invoke(Function::Settle, hint(journey).await)
            }
            Self::TimedOut => {
                wait_for(journey, &["alice", "bob"]).await;
                journey.claimed().await;
                Invocation { ahead_s: MUCH_LATER_S, ..invoke(Function::Sweep, json!({})) }
            }
            Self::Requeued => {
                wait_for(journey, &["alice", "bob"]).await;
                let batch = journey.claimed().await;
                let event = json!({ "action": "requeue", "actor": "operator@example.com", "reason": "a test", "batch_id": batch });
                invoke(Function::Ops, event)
            }
            Self::Expired => {
                let in_two_days = "SELECT DATE_FORMAT(CURRENT_TIMESTAMP + INTERVAL 2 DAY, '%Y-%m-%dT00:00:00Z')";
                let expires: String = journey.world.scalar(in_two_days, ()).await;
                let body = json!({ "subject_id": "alice", "target_key": "db", "action": "grant", "expires_at": expires });
                journey.world.admitted(request(&body)).await;
                let batch = journey.claimed().await;
                journey.settle_until(batch, adapters::settlement::Progress::Succeeded).await;
                leave_an_orphan(journey).await;
                Invocation { ahead_s: THREE_DAYS_LATER_S, ..invoke(Function::Sweep, json!({})) }
            }
        }
    }

    /// What the world does while nobody looks: from now on all pipelines that can pass do.
    pub fn meanwhile(self, journey: &Journey) {
        if matches!(self, Self::TimedOut | Self::Requeued) {
            journey.forge.set_pipeline(PipelinePlan::pass(BRIEF));
        }
    }

    pub fn wanted(self) -> &'static [Wanted] {
        match self {
            Self::Admit => &[("alice", "ACTIVE", true)],
            Self::Round | Self::Landed | Self::TimedOut | Self::Requeued => &[("alice", "ACTIVE", true), ("bob", "ACTIVE", true)],
            Self::Convicted => &[("bad", "FAILED", false), ("good", "ACTIVE", true)],
            Self::Expired => &[("alice", "CLOSED", false)],
        }
    }

    /// Requests that were admitted in the end, by whomever.
    pub fn operations(self) -> u64 {
        if self == Self::Admit { 1 } else { 2 }
    }
}

async fn wait_for(journey: &Journey, subjects: &[&str]) {
    for subject in subjects {
        journey.world.admitted(grant(subject, "db")).await;
    }
}

async fn until_it_is(journey: &Journey, state: MrState) {
    until("the state of the merge request", async || (journey.forge.merge_requests()[0].state == state).then_some(())).await;
}

/// The event that `settle` gets of the only batch.
async fn hint(journey: &Journey) -> Value {
    let token: String = journey.world.scalar("SELECT LOWER(HEX(claim_token)) FROM merge_batch", ()).await;
    let body = json!({ "v": 1, "project_id": 7, "mr_iid": 1, "source_branch": format!("muster/default/{token}"), "kind": "merge_request",
        "delivery_id": "d", "received_at": "2027-01-31T09:00:00Z" });
    json!({ "Records": [{ "messageId": "one", "receiptHandle": "r", "body": body.to_string(), "attributes": {}, "messageAttributes": {},
        "eventSource": "aws:sqs" }] })
}

/// The request of one subject as API Gateway hands it on, under one key however often it is sent.
pub fn post(subject: &str) -> Value {
    let body = json!({ "subject_id": subject, "target_key": "db", "action": "grant" });
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": "/requests", "rawQueryString": "",
        "headers": { "content-type": "application/json", "idempotency-key": format!("key-of-{subject}") },
        "requestContext": {
            "stage": "$default",
            "http": { "method": "POST", "path": "/requests", "protocol": "HTTP/1.1", "sourceIp": "192.0.2.7", "userAgent": REQUESTER },
        },
        "body": body.to_string(), "isBase64Encoded": false,
    })
}

/// A merge request on our prefix, of a batch that nobody knows.
async fn leave_an_orphan(journey: &Journey) {
    let branch = format!("muster/default/{}", "ab".repeat(16));
    journey.forge.push_as("muster-bot", &branch, &[("access/old", Some("x"))], "left over").await.expect("a push");
    let url = format!("{}/api/v4/projects/7/merge_requests", journey.forge.url());
    let body = json!({ "source_branch": branch, "target_branch": "main", "title": "left over" });
    let client = reqwest::Client::new();
    let answer = client.post(url).header("PRIVATE-TOKEN", crate::journey::TOKEN).json(&body).send().await.expect("an answer");
    assert_eq!(answer.status(), 201);
}
