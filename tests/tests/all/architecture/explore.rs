//! Every state that one relationship, its request and its batch can reach, and every unit run in each of them.
//!
//! A state is reached by the units alone, from an empty partition. Which transitions a unit made is read from the rows
//! before and after it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_tests::*;
use shared::ids::{BatchId, OperationId, Principal};
use shared::request::Request;
use shared::state::OperationStatus;
use shared::transactions::admit::{Admit, AdmitOutcome};
use shared::transactions::claim::{Claim, ClaimOutcome};
use shared::transactions::close_failed::CloseFailed;
use shared::transactions::command::Command;
use shared::transactions::commanded::{Commanded, Subject};
use shared::transactions::reconcile_late_merge::ReconcileLateMerge;
use shared::transactions::record_render::{Expelled, RecordRender};
use shared::transactions::recover::{Recover, RecoverTo};
use shared::transactions::unblock::Unblock;
use shared::tx::{Point, Probe};
use shared::{Guarded, Store, StoreError};

use super::map::{Look, Map, Next, Ran, Step, Transitions};

/// The hour that a grant lasts, and a moment after it, in seconds.
const LASTS_S: i64 = 3600;
const AFTERWARDS_S: i64 = 7200;
const STEPS_OF_A_SCENE: u32 = 200;
/// Many times what it takes.
const PERFORMED_MAX: u32 = 50_000;

#[derive(Default)]
struct Watch(Mutex<Ran>);

impl Watch {
    fn take(&self) -> Ran {
        std::mem::take(&mut *self.0.lock().expect("no holder panics"))
    }
}

impl Probe for Watch {
    fn reached<'a>(&'a self, point: Point<'a>) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>> {
        let mut ran = self.0.lock().expect("no holder panics");
        match point {
            Point::Statement { unit, sql, .. } => {
                ran.unit = unit;
                ran.statements.insert(sql.trim_start_matches("/* ").split(" */").next().unwrap_or_default().to_owned());
            }
            Point::BeforeCommit { .. } => {}
            Point::AfterCommit { .. } => ran.committed = true,
        }
        Box::pin(async { Ok(()) })
    }
}

/// A partition of its own, with one relationship.
struct Scene<'w> {
    walker: &'w Walker<'w>,
    number: u32,
    steps: u32,
    operation: Option<OperationId>,
    batch: Option<BatchId>,
}

/// Leads one scene after another. Several walk at once, for most of their time is the database's.
struct Walker<'w> {
    world: &'w World,
    map: &'w RefCell<Map>,
    scenes: &'w Cell<u32>,
    store: Store,
    afterwards: Store,
    watch: Arc<Watch>,
    expires_at: String,
}

/// Runs every unit in every situation, and answers each transition with the statements that made it.
pub async fn all_transitions() -> Transitions {
    let world = World::empty().await;
    let (map, scenes) = (RefCell::default(), Cell::new(0));
    let walkers = [(); 4].map(|()| Walker::new(&world, &map, &scenes));
    let [a, b, c, d] = walkers;
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    tokio::join!(a.walk(), b.walk(), c.walk(), d.walk());
    world.assert_invariants().await;
    let map = map.take();
    println!("{} situations, {} units, {} scenes, {} transitions", map.ways.len(), map.performed, scenes.get(), map.made.len());
    map.made
}

impl<'w> Walker<'w> {
    async fn new(world: &'w World, map: &'w RefCell<Map>, scenes: &'w Cell<u32>) -> Self {
        let watch = Arc::new(Watch::default());
        let store = world.store_probed(watch.clone());
        let now: f64 = world.scalar("SELECT CAST(UNIX_TIMESTAMP(CURRENT_TIMESTAMP(6)) AS DOUBLE)", ()).await;
        let afterwards = world.store_with(|options| {
            options.session = vec![format!("timestamp = {:.6}", now + AFTERWARDS_S as f64)];
            options.probe = Some(watch.clone());
        });
        let lasts = "SELECT DATE_FORMAT(CURRENT_TIMESTAMP + INTERVAL ? SECOND, '%Y-%m-%dT%H:%i:%sZ')";
        let expires_at = world.scalar(lasts, (LASTS_S,)).await;
        Self { world, map, scenes, store, afterwards, watch, expires_at }
    }

    async fn walk(&self) {
        let (mut scene, mut here) = self.scene().await;
        loop {
            // A relationship whose history grows makes each look at it dearer.
            let next = if scene.steps < STEPS_OF_A_SCENE { self.map.borrow_mut().next_step(&here.kind) } else { Next::Elsewhere };
            match next {
                Next::Try(step) => {
                    scene.steps += 1;
                    scene.perform(step).await;
                    let ran = self.watch.take();
                    let there = if ran.committed { scene.look().await } else { here.clone() };
                    let mut map = self.map.borrow_mut();
                    map.note(&here, step, &there, &ran);
                    assert!(map.performed < PERFORMED_MAX, "the units go in circles; left to try: {:#?}", map.unfinished());
                    here = there;
                }
                Next::Elsewhere if scene.steps > 0 => (scene, here) = self.scene().await,
                Next::Elsewhere if self.map.borrow().under_way == 0 => {
                    panic!("these situations are not reached again: {:#?}", self.map.borrow().unfinished())
                }
                Next::Elsewhere | Next::Wait => tokio::time::sleep(Duration::from_millis(1)).await,
                Next::AllTried => return,
            }
        }
    }

    /// A partition and a target of which nothing is asked yet.
    async fn scene(&self) -> (Scene<'_>, Look) {
        let number = self.scenes.get() + 1;
        self.scenes.set(number);
        let (partition, target) = (format!("p{number}"), format!("t{number}"));
        self.world
            .sql(
                "INSERT INTO merge_partition (partition_key, project, target_branch, path_template, allowed_prefixes) \
                 VALUES (?, 'acme/access', ?, 'access/{target_key}/{subject_id}.json', '[\"access/\"]')",
                (&partition, &partition),
            )
            .await;
        self.world.sql("INSERT INTO target (target_key, partition_key) VALUES (?, ?)", (&target, &partition)).await;
        (Scene { walker: self, number, steps: 0, operation: None, batch: None }, Look::default())
    }
}

impl Scene<'_> {
    /// Does nothing where there is nothing yet that it could be done to.
    async fn perform(&mut self, step: Step) {
        let target = format!("t{}", self.number);
        let (operation, batch) = (self.operation.clone(), self.batch);
        let muster = Principal::muster();
        match (step, operation, batch) {
            (Step::Grant, ..) => {
                let body = serde_json::json!({
                    "subject_id": "alice", "target_key": target, "action": "grant", "expires_at": self.walker.expires_at,
                });
                self.admit(admit(request(&body))).await;
            }
            (Step::Revoke, ..) => self.admit(admit(revoke("alice", &target))).await,
            (Step::RevokeExpired, ..) => {
                let request = Request::expiry_revoke(subject("alice"), muster_tests::target(&target));
                self.admit(Admit { principal: Principal::expiry(), strict_targets: true, ..admit(request) }).await;
            }
            (Step::Claim, ..) => {
                let token = shared::ids::ClaimToken::random();
                let unit = Claim { token, ..claim_of(&format!("p{}", self.number), "") };
                if let ClaimOutcome::Claimed { batch, .. } = self.run(&unit).await {
                    self.batch = Some(batch);
                }
            }
            (Step::Withdraw, Some(operation), _) => drop(self.run(&withdraw(&operation)).await),
            (Step::Expire, Some(operation), _) => {
                let outcome = self.walker.afterwards.run(&expire(&operation)).await;
                let _ = outcome.expect("an outcome");
            }
            (Step::CloseFailed, Some(operation), _) => drop(self.run(&CloseFailed { operation, actor: muster }).await),
            (Step::ReconcileLateMerge, _, Some(batch)) => {
                let unit = ReconcileLateMerge { batch, by: "settler".to_owned(), merge_sha: "a".repeat(40) };
                drop(self.run(&unit).await);
            }
            (Step::Recover(to), Some(operation), _) => self.recover(operation, to).await,
            (Step::Render, _, Some(batch)) => drop(self.run(&record_render(batch)).await),
            (Step::RenderExpelling, Some(operation), Some(batch)) => {
                let expelled = vec![Expelled { operation, code: "base_mismatch", reason: "another content".to_owned() }];
                drop(self.run(&RecordRender { expelled, ..record_render(batch) }).await);
            }
            (Step::Succeed, _, Some(batch)) => drop(self.run(&succeed(batch, "settler")).await),
            (Step::BeginFail(cause), _, Some(batch)) => drop(self.run(&begin_fail(batch, cause)).await),
            (Step::Fail, _, Some(batch)) => drop(self.run(&fail(batch, "settler")).await),
            (Step::FailAsOrdered(cause), _, Some(batch)) => {
                let version = self.walker.world.scalar("SELECT version FROM merge_batch WHERE id = ?", (batch,)).await;
                drop(self.run(&fail_as_ordered(batch, version, cause)).await);
            }
            (Step::Block, _, Some(batch)) => drop(self.run(&block(batch)).await),
            (Step::Unblock, _, Some(batch)) => drop(self.run(&Unblock { batch }).await),
            _ => {}
        }
    }

    async fn run<G: Guarded>(&self, unit: &G) -> G::Outcome {
        match self.walker.store.run(unit).await {
            Ok(outcome) => outcome,
            Err(error) => panic!("{} came to no outcome: {error}", G::NAME),
        }
    }

    async fn admit(&mut self, unit: Admit) {
        if let AdmitOutcome::Admitted(admission) = self.run(&unit).await {
            self.operation = Some(admission.operation);
        }
    }

    /// As an operator orders it, when Git has just been asked and has agreed.
    async fn recover(&self, operation: OperationId, to: OperationStatus) {
        let version = self.walker.world.scalar("SELECT version FROM operation WHERE operation_id = ?", (&operation,)).await;
        let to = match to {
            OperationStatus::Waiting => RecoverTo::Waiting,
            OperationStatus::Merged => RecoverTo::Merged { commit: "a".repeat(40) },
            _ => RecoverTo::Closed,
        };
        let actor = principal(OPERATOR);
        let command = Command::new("recover", actor.clone(), "it landed, or it did not", false);
        let subject = Subject::Operation(operation.clone());
        let _ = self.run(&Commanded { unit: Recover { operation, version, to, actor }, subject, command }).await;
    }

    async fn look(&self) -> Look {
        const STATES: &str = "SELECT 'operation', operation_id, ELT(status, 'WAITING', 'IN_BATCH', 'MERGED', 'REJECTED', 'FAILED', 'WITHDRAWN', 'CLOSED') \
                 FROM operation WHERE target_key = ? \
             UNION ALL SELECT 'binding', subject_id, ELT(status, 'APPLYING', 'ACTIVE', 'REVOKING', 'REJECTED', 'FAILED', 'CLOSED') \
                 FROM binding WHERE target_key = ? \
             UNION ALL SELECT 'batch', CAST(id AS CHAR), ELT(status, 'RUNNING', 'SUCCEEDED', 'FAILED', 'BLOCKED') \
                 FROM merge_batch WHERE partition_key = ? \
             UNION ALL SELECT 'kind', '', CONCAT_WS(' ', 'binding', b.status, LEAST(b.expiry_rejections, 2), 'operation', o.action, o.status, \
                     IF(o.status IN (1, 2, 5), CONCAT(o.requested_by = 'muster:expiry', o.withdraw_requested_at IS NOT NULL), 'ended'), \
                     CASE WHEN m.status IN (1, 4) THEN CONCAT('batch ', m.status, ' ', \
                             COALESCE(m.fail_cause, IF(m.start_sha IS NULL, 'unrendered', 'rendered'))) \
                          WHEN o.batch_id = m.id THEN CONCAT('ended batch ', m.status, ' ', m.late_merged_at IS NOT NULL) \
                          ELSE 'no batch' END) \
                 FROM binding b LEFT JOIN operation o ON o.operation_id = b.operation_id LEFT JOIN merge_batch m ON m.id = ? \
                 WHERE b.target_key = ?";
        let (partition, target) = (format!("p{}", self.number), format!("t{}", self.number));
        let batch = self.batch.map(|batch| batch.0);
        let mut look = Look::default();
        for (machine, key, state) in
            self.walker.world.rows::<(String, String, String)>(STATES, (&target, &target, &partition, batch, &target)).await
        {
            match machine.as_str() {
                "kind" => look.kind = state,
                _ => drop(look.states.insert((machine, key), state)),
            }
        }
        look
    }
}
