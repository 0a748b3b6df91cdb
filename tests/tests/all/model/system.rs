//! The same history on a real database: what each command makes of it must be what the reference tells.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use muster_tests::deadline::until;
use muster_tests::proxy::{Cut, Harm, Moment};
use muster_tests::world::be_patient;
use muster_tests::*;
use proptest_state_machine::StateMachineTest;
use serde_json::json;
use shared::ids::{BatchId, OperationId, Principal};
use shared::state::{BatchStatus, BindingStatus, OperationStatus};
use shared::transactions::admit::{Admit, AdmitOutcome};
use shared::transactions::claim::{Claim, ClaimOutcome};
use shared::transactions::reconcile_late_merge::ReconcileLateMerge;
use shared::transactions::recover::{Recover, RecoverTo};
use shared::transactions::unblock::Unblock;
use shared::tx::{Point, Probe};
use shared::{Guarded, Store, StoreError, StoreOptions};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::reference::{LASTS_S, Reference, SEATS, Step};
use super::{Fate, Told};

/// Steps so far, by name and fate, of all histories of this process.
pub static STEPS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

pub struct Model;

pub struct System {
    runtime: Arc<Runtime>,
    world: Option<World>,
    /// The moment at which the history begins, in whole seconds since 1970.
    began_s: i64,
    now_s: u32,
    requests: Vec<OperationId>,
    batches: Vec<BatchId>,
    commands: u32,
}

/// Stands still before a statement, or before the COMMIT, and says so: whoever waits there never goes on.
struct Grave {
    at: u32,
    reached: AtomicU32,
    stands: Notify,
}

impl Probe for Grave {
    fn reached<'a>(&'a self, point: Point<'a>) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>> {
        Box::pin(async move {
            let is_here = match point {
                Point::Statement { n, .. } => n == self.at,
                Point::BeforeCommit { .. } => true,
                Point::AfterCommit { .. } => false,
            };
            if is_here {
                self.reached.fetch_add(1, Ordering::SeqCst);
                self.stands.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }
}

impl System {
    fn world(&self) -> &World {
        self.world.as_ref().expect("a world until the end")
    }

    /// The clock of every session of a history stands where the history is.
    fn at_this_moment(&self, options: &mut StoreOptions) {
        be_patient(options);
        options.session.push(format!("timestamp = {}", self.began_s + i64::from(self.now_s)));
    }

    fn store(&self) -> Store {
        self.world().store_with(|options| self.at_this_moment(options))
    }

    /// Runs a unit through its fate; its outcome if its giver lived to hear it.
    async fn run<G: Guarded>(&self, unit: &G, fate: Fate) -> Option<G::Outcome> {
        let clean = async || Some(self.store().run(unit).await.unwrap_or_else(|error| panic!("{}: {error} ({error:?})", G::NAME)));
        match fate {
            Fate::Clean => clean().await,
            Fate::LostCommit { is_done } => {
                let cut = if is_done { Cut::AfterServer } else { Cut::BeforeServer };
                let (store, _proxy) =
                    self.world().store_harmed(Moment::Commit, Harm::Cut(cut), 1, |options| self.at_this_moment(options)).await;
                Some(store.run(unit).await.unwrap_or_else(|error| panic!("{} through {fate:?}: {error} ({error:?})", G::NAME)))
            }
            Fate::GivenTwice => {
                let first = clean().await;
                let _ = clean().await;
                first
            }
            Fate::DiesAt(statement) => {
                self.die(unit, statement).await;
                clean().await
            }
            Fate::Abandoned => {
                self.die(unit, u32::MAX).await;
                None
            }
        }
    }

    /// Lets the unit come to a statement, or to its COMMIT, and drops it there. One that refuses before comes to its end.
    async fn die<G: Guarded>(&self, unit: &G, at: u32) {
        let others = self.world().connections().await;
        let grave = Arc::new(Grave { at, reached: AtomicU32::new(0), stands: Notify::new() });
        let store = self.world().store_with(|options| {
            self.at_this_moment(options);
            options.probe = Some(grave.clone());
        });
        tokio::select! {
            outcome = store.run(unit) => {
                let _ = outcome.unwrap_or_else(|error| panic!("{}: {error}", G::NAME));
            }
            () = grave.stands.notified() => {}
        }
        drop(store);
        // The server undoes what the dead one held.
        self.world().until_only(&others).await;
    }

    async fn admit(&mut self, subject: usize, revokes: bool, fate: Fate) {
        let expires: Option<String> = if subject.is_multiple_of(2) && !revokes {
            let sql = "SELECT DATE_FORMAT(FROM_UNIXTIME(?), '%Y-%m-%dT%H:%i:%sZ')";
            Some(self.world().scalar(sql, (self.began_s + i64::from(self.now_s + LASTS_S),)).await)
        } else {
            None
        };
        let action = if revokes { "revoke" } else { "grant" };
        let mut body = json!({ "subject_id": format!("subject-{subject}"), "target_key": "db", "action": action });
        if let Some(expires) = expires {
            body["expires_at"] = json!(expires);
        }
        let unit: Admit = admit(request(&body));
        match self.run(&unit, fate).await {
            Some(AdmitOutcome::Admitted(_)) => self.requests.push(unit.operation),
            Some(AdmitOutcome::BindingHeld { .. } | AdmitOutcome::SeatsExhausted { .. }) | None => {}
            Some(other) => panic!("an admission came to {other:?}"),
        }
    }

    async fn claim(&mut self, fate: Fate) {
        let unit = Claim { trigger: shared::state::Trigger::Manual, ..claim(&format!("round-{}", self.commands)) };
        let mut outcome = self.run(&unit, fate).await;
        if outcome == Some(ClaimOutcome::Contended) {
            // Its own transaction, cut off, still held the gate.
            outcome = Some(
                until("a claim that is not contended", async || {
                    self.run(&unit, Fate::Clean).await.filter(|outcome| *outcome != ClaimOutcome::Contended)
                })
                .await,
            );
        }
        match outcome {
            Some(ClaimOutcome::Claimed { batch, .. } | ClaimOutcome::AlreadyClaimed { batch, .. }) => self.batches.push(batch),
            Some(ClaimOutcome::SlotOccupied { .. } | ClaimOutcome::NothingToClaim) | None => {}
            Some(other) => panic!("a claim came to {other:?}"),
        }
    }

    /// Whatever comes of it: the rows tell.
    async fn give<G: Guarded>(&self, unit: &G, fate: Fate) {
        let _ = self.run(unit, fate).await;
    }

    async fn perform(&mut self, told: &Told) {
        let fate = told.fate;
        let by = format!("giver-{}", self.commands);
        match told.step {
            Step::Grant(subject) => self.admit(subject, false, fate).await,
            Step::Revoke(subject) => self.admit(subject, true, fate).await,
            Step::Claim => self.claim(fate).await,
            Step::Withdraw(n) => self.give(&withdraw(&self.requests[n]), fate).await,
            Step::Expire(n) => self.give(&expire(&self.requests[n]), fate).await,
            Step::Recover(n) => {
                let operation = self.requests[n].clone();
                let version = self.world().scalar("SELECT version FROM operation WHERE operation_id = ?", (&operation,)).await;
                let unit = Recover { operation, version, to: RecoverTo::Waiting, actor: Principal::muster() };
                self.give(&unit, fate).await;
            }
            Step::Succeed(n) => self.give(&succeed(self.batches[n], &by), fate).await,
            Step::BeginFail(n, cause) => {
                let unit = shared::transactions::begin_fail::BeginFail { by, ..begin_fail(self.batches[n], cause) };
                self.give(&unit, fate).await;
            }
            Step::Fail(n) => self.give(&fail(self.batches[n], &by), fate).await,
            Step::Block(n) => self.give(&block(self.batches[n]), fate).await,
            Step::Unblock(n) => self.give(&Unblock { batch: self.batches[n] }, fate).await,
            Step::LateMerge(n) => {
                let unit = ReconcileLateMerge { batch: self.batches[n], by, merge_sha: "b".repeat(40) };
                self.give(&unit, fate).await;
            }
            Step::Tick(seconds) => self.now_s += seconds,
        }
    }

    async fn assert_is(&self, reference: &Reference, told: &Told) {
        let world = self.world();
        let requests: Vec<i64> = world.rows("SELECT status FROM operation ORDER BY created_at, operation_id", ()).await;
        let requests: Vec<OperationStatus> = requests.into_iter().map(|code| OperationStatus::from_code(code).expect("a state")).collect();
        let expected: Vec<OperationStatus> = reference.requests.iter().map(|one| one.status).collect();
        assert_eq!(requests, expected, "requests after {told:?}");
        let batches: Vec<i64> = world.rows("SELECT status FROM merge_batch ORDER BY id", ()).await;
        let batches: Vec<BatchStatus> = batches.into_iter().map(|code| BatchStatus::from_code(code).expect("a state")).collect();
        let expected: Vec<BatchStatus> = reference.batches.iter().map(|one| one.status).collect();
        assert_eq!(batches, expected, "batches after {told:?}");
        let bindings: Vec<(String, i64)> = world.rows("SELECT subject_id, status FROM binding ORDER BY subject_id", ()).await;
        let bindings: Vec<(String, BindingStatus)> =
            bindings.into_iter().map(|(subject, code)| (subject, BindingStatus::from_code(code).expect("a state"))).collect();
        let expected: Vec<(String, BindingStatus)> = reference
            .bindings
            .iter()
            .enumerate()
            .filter_map(|(subject, one)| Some((format!("subject-{subject}"), one.as_ref()?.status)))
            .collect();
        assert_eq!(bindings, expected, "relationships after {told:?}");
        let used: u64 = world.scalar("SELECT used FROM target", ()).await;
        assert_eq!(used as usize, reference.used(), "seats after {told:?}");
        world.assert_invariants().await;
    }
}

impl StateMachineTest for Model {
    type SystemUnderTest = System;
    type Reference = Reference;

    fn init_test(_: &Reference) -> System {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (world, began_s) = runtime.block_on(async {
            let world = World::new().await.with_target("db", "default", Some(SEATS as u64)).await;
            let began_s = world.scalar("SELECT CAST(UNIX_TIMESTAMP() AS SIGNED)", ()).await;
            (world, began_s)
        });
        System { runtime: Arc::new(runtime), world: Some(world), began_s, now_s: 0, requests: Vec::new(), batches: Vec::new(), commands: 0 }
    }

    fn apply(mut system: System, reference: &Reference, told: Told) -> System {
        // Which request or batch it is about matters to nobody.
        let words: String = format!("{:?} {:?}", told.step, told.fate).chars().filter(|c| c.is_alphabetic() || *c == ' ').collect();
        *STEPS.lock().expect("no holder panics").entry(words).or_default() += 1;
        system.commands += 1;
        let runtime = system.runtime.clone();
        runtime.block_on(async {
            system.perform(&told).await;
            system.assert_is(reference, &told).await;
        });
        system
    }

    fn teardown(mut system: System, _: Reference) {
        let world = system.world.take();
        system.runtime.block_on(async { drop(world) });
    }
}
