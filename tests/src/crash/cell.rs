//! One cell of the matrix: a story, an answer of the forge, and the boundary at which the process dies.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use adapters::forge::gitlab::GitLab;
use adapters::relay::Relay;
use serde_json::{Value, json};
use std::sync::Arc;

use super::answers::{Answer, LATE};
use super::parent::{self, End};
use super::plan::{Function, Halt, Plan};
use super::spool::Spool;
use super::story::{Invocation, Story};
use super::turnstile::Turnstile;
use super::verdict::{self, Verdict};
use crate::commands::{REQUESTER, principal};
use crate::journey::{Journey, stop_at};

/// Between two looks of the recovery, on the database's clock: longer than a lease and than every back-off.
const STEP_S: i64 = 100;
/// By then everything has ended, or it never will.
const LOOKS: i64 = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub story: Story,
    pub answer: Answer,
    /// The call of the forge that is answered so, counted from 1; any, where the answer is `Ok`.
    pub call: u32,
    /// Where the process is killed, counted from 1; `None`: it runs to its end.
    pub boundary: Option<u32>,
}

/// What became of it.
pub struct Outcome {
    /// The boundary was met. Where time takes part in a course, it may not come again.
    pub is_met: bool,
    /// Every boundary that the process met.
    pub boundaries: Vec<String>,
    pub verdict: Verdict,
}

impl Cell {
    /// Invokes the function, kills it, lets the others go on, and judges what there is in the end.
    pub async fn run(self) -> Outcome {
        let journey = Journey::new().await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spool = folder.path().join("events");
        let invocation = self.story.prepare(&journey).await;
        let plan = Plan {
            halt: self.boundary.map(|at| (at, Halt::Kill)),
            ..plan(&journey, &invocation, self.answer.call_timeout(), folder.path().join("boundaries"), spool.clone()).await
        };
        if let Some(fault) = self.answer.fault(self.call) {
            journey.forge.inject(fault);
        }
        let started = Instant::now();
        let end = parent::run(&plan).await;
        journey.forge.clear_faults();
        self.story.meanwhile(&journey);
        let recovery = Recovery { journey: &journey, invocation: &invocation, spool: &spool };
        // Half of the dead functions are invoked again by whoever invoked them, the others only make room for the sweep.
        let again = invocation.function == Function::Admit || self.boundary.is_some_and(|at| at % 2 == 0);
        let mut at = recovery.run(again, invocation.ahead_s).await;
        if self.answer == Answer::Timeout {
            // The late call lands after all was over.
            tokio::time::sleep((LATE + Duration::from_millis(500)).saturating_sub(started.elapsed())).await;
            at = recovery.run(false, at).await;
        }
        let verdict = verdict::of(&journey, self.story, &spool, at - invocation.ahead_s).await;
        Outcome { is_met: (end == End::Killed) == self.boundary.is_some(), boundaries: parent::boundaries(&plan.log), verdict }
    }
}

/// The plan of a process that is not halted.
pub async fn plan(journey: &Journey, invocation: &Invocation, call_timeout: Duration, log: PathBuf, spool: PathBuf) -> Plan {
    Plan {
        function: invocation.function,
        event: invocation.event.clone(),
        database_url: journey.world.url().to_owned(),
        session: if invocation.ahead_s == 0 { Vec::new() } else { vec![journey.world.clock_in(invocation.ahead_s).await] },
        gitlab_url: journey.forge.url(),
        call_timeout_ms: call_timeout.as_millis() as u64,
        log,
        spool,
        halt: None,
    }
}

/// Everything that goes on by itself after a function has died.
pub struct Recovery<'j> {
    pub journey: &'j Journey,
    pub invocation: &'j Invocation,
    pub spool: &'j PathBuf,
}

impl Recovery<'_> {
    /// Sweeps and rounds until nothing is left to do; answers the seconds by which the clock is ahead then.
    pub async fn run(&self, again: bool, from_s: i64) -> i64 {
        let mut at = from_s;
        for look in 0..LOOKS {
            at += STEP_S;
            let relay = self.runner(at).await;
            if again && look == 0 {
                self.invoke_again(&relay).await;
            }
            let _ = sweep::handle(&relay, json!({}), stop_at()).await.expect("a sweep always answers");
            let round = json!({ "detail-type": "Scheduled Event" });
            let _ = claim_round::handle(&relay, round, stop_at()).await.expect("a round always answers");
            if self.is_over().await {
                break;
            }
        }
        // What is left on the forge now is nobody's: one more look must find and close it.
        at += STEP_S;
        let relay = self.runner(at).await;
        let _ = sweep::handle(&relay, json!({}), stop_at()).await.expect("a sweep always answers");
        at
    }

    async fn runner(&self, ahead_s: i64) -> Relay<GitLab, Spool> {
        let Relay { store, forge, .. } = self.journey.runner_in(ahead_s).await;
        Relay { store, forge, outbound: Spool::new(self.spool, Arc::new(Turnstile::default())) }
    }

    async fn invoke_again(&self, relay: &Relay<GitLab, Spool>) {
        let event: Value = self.invocation.event.clone();
        match self.invocation.function {
            Function::Admit => {
                let store = relay.store.clone();
                let state = admit::AdmitState { store, operators: None, dev_principal: Some(principal(REQUESTER)), strict_targets: false };
                let request = lambda_http::request::from_str(&event.to_string()).expect("an event of API Gateway");
                let answer = admit::handle(&state, request).await.expect("every request is answered");
                assert!(answer.status().is_success(), "{answer:?}");
            }
            Function::ClaimRound => drop(claim_round::handle(relay, event, stop_at()).await.expect("a round always answers")),
            Function::Settle => drop(settle::handle(relay, event, stop_at()).await.expect("an SQS event is answered")),
            Function::Sweep => drop(sweep::handle(relay, event, stop_at()).await.expect("a sweep always answers")),
            Function::Ops => drop(ops::handle(relay, event, stop_at()).await.expect("the database answers")),
        }
    }

    async fn is_over(&self) -> bool {
        let world = &self.journey.world;
        let open = "(SELECT 1 FROM operation WHERE status IN (1, 2) UNION ALL SELECT 1 FROM merge_batch WHERE status IN (1, 4) \
                    UNION ALL SELECT 1 FROM outbox WHERE delivered_at IS NULL AND given_up_at IS NULL \
                    UNION ALL SELECT 1 FROM binding WHERE status = 2 AND expires_at < CURRENT_TIMESTAMP) AS open_ones";
        world.count("operation").await > 0 && world.count(open).await == 0
    }
}
