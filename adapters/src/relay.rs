//! The one code path that performs effects.
//!
//! Two callers: a function right after its own commit (the rows of its batch), and the sweep (all that are
//! overdue). Each row is leased, performed, and recorded if the lease still holds: at least once performed,
//! once recorded. A crash anywhere leaves a lease that runs out.

mod branch;
mod merge;
mod open;
mod publish;

use std::time::{Duration, Instant};

use shared::StoreError;
use shared::ids::BatchId;
use shared::outbox::kind;
use shared::read::round::{self, Round};
use shared::state::FailCause;
use shared::store::Store;
use shared::transactions::begin_fail::BeginFail;
use shared::transactions::block::Block;
use shared::transactions::deliveries::{
    Delivery, Fate, LeaseDeliveries, LeaseToken, RecordDeliveries, RecordDeliveriesOutcome, Scope, clip,
};

use crate::forge::{Forge, ForgeError, ProjectRef};
use crate::outbound::Outbound;

/// Effects leased at once: few enough that their calls end well within the lease.
const EFFECTS_AT_ONCE: u32 = 20;
/// Events leased at once: as many as a few calls of the queue take.
const EVENTS_AT_ONCE: u32 = 200;
/// An effect that is asked again after at most this long.
const BACK_OFF_MAX_S: u32 = 60;
/// After so many attempts, of whatever outcome, a forge answer that no waiting helps is a person's to look at. Some of
/// the attempts before it met a forge that was not ready yet.
const HOPELESS_ATTEMPTS: u32 = 8;
/// An effect that only ever meets faults is given up with an alarm after this many attempts (about a day).
const FAULTY_ATTEMPTS: u32 = 1_500;

/// Performs effects with its forge and its way out to AWS.
pub struct Relay<F, E> {
    pub store: Store,
    pub forge: F,
    pub outbound: E,
}

/// What passes of the relay did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RelayReport {
    pub delivered: u32,
    pub postponed: u32,
    pub given_up: u32,
}

/// How one effect came out.
#[derive(Debug)]
enum Performed {
    /// Done, or not wanted any more.
    Done,
    /// Recorded already, by the transaction that took its result.
    Recorded,
    Later {
        delay_s: Option<u32>,
        why: String,
    },
    GiveUp {
        why: String,
    },
    /// Nobody came to perform it.
    Untouched,
}

#[derive(Debug, thiserror::Error)]
enum EffectError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Forge(#[from] ForgeError),
}

type Effected = Result<Performed, EffectError>;

impl<F: Forge, E: Outbound> Relay<F, E> {
    /// Performs what is due in `scope`, and what that causes, until nothing is due or `deadline` is near.
    ///
    /// # Errors
    /// Only where the database could not be asked; leased rows are then free again when their lease runs out.
    pub async fn drive(&self, scope: Scope, deadline: Instant) -> Result<RelayReport, StoreError> {
        let mut report = RelayReport::default();
        // Each pass may cause the effects of the next. None is leased twice in one call, for a postponed one is due later.
        while Instant::now() < deadline {
            let token = LeaseToken::random();
            let unit = LeaseDeliveries { scope: scope.clone(), effects: EFFECTS_AT_ONCE, events: EVENTS_AT_ONCE, token };
            let leased = self.store.run(&unit).await?;
            if leased.is_empty() {
                break;
            }
            self.perform_all(leased, token, deadline, &mut report).await?;
        }
        Ok(report)
    }

    /// As [`drive`](Self::drive) for one batch, but waits for an effect that is due again within `patience`:
    /// a merge request is rarely ready to be armed in the second in which it was opened.
    pub async fn drive_batch(&self, batch: BatchId, patience: Duration, deadline: Instant) -> Result<RelayReport, StoreError> {
        let mut report = self.drive(Scope::Batch(batch), deadline).await?;
        let patient_until = deadline.min(Instant::now() + patience);
        while let Some(wait) = round::next_due(&self.store, batch).await? {
            if Instant::now() + wait >= patient_until {
                break;
            }
            tokio::time::sleep(wait).await;
            let more = self.drive(Scope::Batch(batch), deadline).await?;
            if more == RelayReport::default() {
                break; // Another relay holds what is due.
            }
            report.add(more);
        }
        Ok(report)
    }

    async fn perform_all(
        &self,
        leased: Vec<Delivery>,
        token: LeaseToken,
        deadline: Instant,
        report: &mut RelayReport,
    ) -> Result<(), StoreError> {
        let (events, effects): (Vec<_>, Vec<_>) = leased.into_iter().partition(|one| one.kind == kind::PUBLISH);
        for delivery in effects {
            // A slow forge must not keep the rest leased to a caller whose time is over.
            let performed = if Instant::now() >= deadline { Performed::Untouched } else { self.performed(&delivery, token).await? };
            self.record(vec![(delivery, performed)], token, report).await?;
        }
        let published = if Instant::now() >= deadline {
            events.into_iter().map(|event| (event, Performed::Untouched)).collect()
        } else {
            publish::publish(&self.outbound, events).await
        };
        self.record(published, token, report).await
    }

    /// What became of one effect, whatever it met. Only a database that is away stops the others.
    async fn performed(&self, delivery: &Delivery, token: LeaseToken) -> Result<Performed, StoreError> {
        match Box::pin(self.perform(delivery, token)).await {
            Ok(performed) => Ok(performed),
            Err(EffectError::Forge(error)) => self.after_forge_error(delivery, error).await,
            Err(EffectError::Store(error)) if error.is_outage() => Err(error),
            Err(EffectError::Store(error)) if error.is_fault() => Ok(Performed::Later { delay_s: None, why: error.to_string() }),
            Err(EffectError::Store(error)) => {
                tracing::error!(event = "alarm", alarm = "corruption", effect = %delivery.key, %error);
                Ok(Performed::Later { delay_s: None, why: error.to_string() })
            }
        }
    }

    async fn perform(&self, delivery: &Delivery, token: LeaseToken) -> Effected {
        let Some(batch) = delivery.batch else {
            return Ok(Performed::GiveUp { why: format!("the effect {} names no batch", delivery.key) });
        };
        let Some(round) = round::round(&self.store, batch).await? else {
            return Ok(Performed::GiveUp { why: format!("the batch {batch} of the effect {} does not exist", delivery.key) });
        };
        match delivery.kind.as_str() {
            kind::OPEN_MERGE_REQUEST => self.open(round, delivery, token).await,
            kind::ARM_MERGE => self.arm(round).await,
            kind::DISARM_MERGE => self.disarm(round).await,
            kind::WITHDRAW_MERGE_REQUEST => self.withdraw(round, delivery).await,
            kind::DELETE_BRANCH => self.delete_branch(round).await,
            kind::START_ROUND => Ok(match self.outbound.start_round(&round.partition).await {
                Ok(()) => Performed::Done,
                Err(why) => Performed::Later { delay_s: None, why },
            }),
            other => Ok(Performed::GiveUp { why: format!("this version does not know effects of the kind {other}") }),
        }
    }

    async fn after_forge_error(&self, delivery: &Delivery, error: ForgeError) -> Result<Performed, StoreError> {
        let why = error.to_string();
        if let ForgeError::RateLimited { retry_after_s } = error {
            return Ok(Performed::Later { delay_s: Some(retry_after_s.min(u64::from(u32::MAX)) as u32), why });
        }
        if error.is_transient() || delivery.attempts < HOPELESS_ATTEMPTS {
            return Ok(Performed::Later { delay_s: None, why });
        }
        if must_happen(&delivery.kind) {
            tracing::error!(event = "alarm", alarm = "forge_refused", effect = %delivery.key, attempts = delivery.attempts, why);
            return Ok(Performed::Later { delay_s: None, why });
        }
        // Waiting will not help: the batch is held for a person, who sees what the forge said.
        if let Some(batch) = delivery.batch {
            let held = self.store.run(&Block { batch, code: "forge_refused".into(), message: clip(&why) }).await?;
            tracing::error!(event = "alarm", alarm = "forge_refused", %batch, effect = %delivery.key, held = held.name(), why);
        }
        Ok(Performed::GiveUp { why })
    }

    async fn record(&self, done: Vec<(Delivery, Performed)>, token: LeaseToken, report: &mut RelayReport) -> Result<(), StoreError> {
        let fates: Vec<(String, Fate)> = done
            .into_iter()
            .filter_map(|(delivery, performed)| {
                let fate = fate_of(&delivery, performed);
                report.note(&delivery, fate.as_ref());
                fate.map(|fate| (delivery.key, fate))
            })
            .collect();
        if fates.is_empty() {
            return Ok(());
        }
        let of = fates.len();
        match self.store.run(&RecordDeliveries { token, fates }).await? {
            RecordDeliveriesOutcome::Recorded { lost: 0 } => {}
            // Performed at least once; whoever holds the rows now records them.
            RecordDeliveriesOutcome::Recorded { lost } => tracing::warn!(event = "lease_lost", lost, of),
            RecordDeliveriesOutcome::LeaseLost => tracing::warn!(event = "lease_lost", lost = of, of),
        }
        Ok(())
    }

    /// The forge takes this content for no price: the batch fails by it, and is halved or convicted.
    async fn blame_content(&self, round: &Round, code: &'static str, why: &str) -> Result<(), StoreError> {
        let outcome = self.store.run(&begin_fail(round.id, FailCause::Content, code, clip(why))).await?;
        tracing::warn!(event = "content_refused", batch = %round.id, code, outcome = outcome.name());
        Ok(())
    }
}

/// `None`: recorded already, by the transaction that took its result.
fn fate_of(delivery: &Delivery, performed: Performed) -> Option<Fate> {
    Some(match performed {
        Performed::Recorded => return None,
        Performed::Done => Fate::Delivered,
        Performed::Later { why, .. } if delivery.attempts >= FAULTY_ATTEMPTS && !must_happen(&delivery.kind) => {
            Fate::GivenUp { error: why }
        }
        Performed::Later { delay_s, why } => {
            Fate::Postponed { delay_s: delay_s.unwrap_or_else(|| back_off_s(delivery.attempts)), error: why }
        }
        Performed::GiveUp { why } => Fate::GivenUp { error: why },
        Performed::Untouched => Fate::Returned,
    })
}

impl RelayReport {
    fn note(&mut self, delivery: &Delivery, fate: Option<&Fate>) {
        match fate {
            None | Some(Fate::Delivered) => self.delivered += 1,
            Some(Fate::Postponed { delay_s, error }) => {
                self.postponed += 1;
                tracing::info!(event = "effect_postponed", effect = %delivery.key, attempts = delivery.attempts, delay_s, error);
            }
            Some(Fate::Returned) => self.postponed += 1,
            Some(Fate::GivenUp { error }) => {
                self.given_up += 1;
                tracing::error!(event = "alarm", alarm = "effect_given_up", effect = %delivery.key, attempts = delivery.attempts, error);
            }
        }
    }

    pub fn add(&mut self, other: Self) {
        self.delivered += other.delivered;
        self.postponed += other.postponed;
        self.given_up += other.given_up;
    }
}

/// A signature that no other command has.
pub(crate) fn signature(of: &str) -> String {
    format!("{of}:{}", shared::ids::ClaimToken::random().hex())
}

pub(crate) fn begin_fail(batch: BatchId, cause: FailCause, code: &str, message: String) -> BeginFail {
    BeginFail { batch, by: signature("settlement"), cause, code: code.to_owned(), message }
}

/// The project a batch lands on.
pub fn project_of(round: &Round) -> ProjectRef {
    ProjectRef { path: round.project.clone(), id: round.project_id, target_branch: round.target_branch.clone() }
}

/// A merge request that is to be withdrawn or disarmed would keep its batch waiting for ever if the relay gave up.
fn must_happen(kind_of_effect: &str) -> bool {
    matches!(kind_of_effect, kind::WITHDRAW_MERGE_REQUEST | kind::DISARM_MERGE)
}

/// 1, 2, 4 … 60 s, with up to half of it taken off at random.
fn back_off_s(attempts: u32) -> u32 {
    let ceiling = 2_u32.saturating_pow(attempts.saturating_sub(1).min(6)).min(BACK_OFF_MAX_S);
    (f64::from(ceiling) * (1.0 - rand::random::<f64>() / 2.0)).round() as u32
}
