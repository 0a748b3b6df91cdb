//! The periodic pass: completes, times out, re-drives and cleans, within the invocation's time.
//!
//! It takes no input: everything it does follows from what is stored and from what the forge says.

mod expiry;
mod orphans;
mod seen;

use std::time::{Duration, Instant};

use adapters::forge::Forge;
use adapters::outbound::Outbound;
use adapters::relay::{Relay, RelayReport};
use adapters::settlement::{Progress, settle};
use serde::Serialize;
use serde_json::Value;
use shared::StoreError;
use shared::read::round::active_batches;
use shared::transactions::deliveries::Scope;
use shared::transactions::purge::Purge;

/// Share of a sweep's time for the active batches.
const SETTLING_SHARE: f64 = 0.67;
/// Clean-up transactions in one sweep; the next one goes on.
const PURGES_MAX: u32 = 20;

/// What one sweep did, by pass.
#[derive(Debug, Default, Serialize)]
pub struct SweepReport {
    pub effects: RelayReport,
    pub batches: Batches,
    pub expired_requests: u32,
    pub expiry_revokes: u32,
    pub closed_requests: u32,
    pub orphans_withdrawn: u32,
    pub purged_rows: u64,
    /// What could not be done this time; the next sweep tries again.
    pub problems: Vec<String>,
    /// Time ran out before every pass was done.
    pub cut_short: bool,
}

#[derive(Debug, Default, Serialize)]
pub struct Batches {
    pub looked_at: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub blocked: u32,
    pub unreachable: u32,
}

/// Runs every pass once. A pass that fails is reported and does not keep the others from running.
pub async fn handle<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    _event: Value,
    stop_at: Instant,
) -> Result<SweepReport, lambda_runtime::Error> {
    let mut report = SweepReport::default();
    if let Err(error) = passes(relay, &mut report, stop_at).await {
        report.problems.push(error.to_string());
    }
    // Also where time ran out: just then somebody must learn what is late.
    if let Err(error) = seen::tell(&relay.store).await {
        report.problems.push(error.to_string());
    }
    report.cut_short = Instant::now() >= stop_at;
    let summary = serde_json::to_string(&report).unwrap_or_default();
    tracing::info!(event = "sweep", report = summary);
    Ok(report)
}

/// Ends early only where the database is gone, for then no other pass can work either.
async fn passes<F: Forge, E: Outbound>(relay: &Relay<F, E>, report: &mut SweepReport, stop_at: Instant) -> Result<(), StoreError> {
    // What has ended is settled first; only what is left can be overdue. No batch is waited for: others are next.
    // They begin anywhere and get two thirds of the time, so that neither those in front nor all together keep the rest
    // of the sweep from being done.
    let mut batches = active_batches(&relay.store).await?;
    let begin = rand::random_range(0..batches.len().max(1));
    batches.rotate_left(begin);
    let settle_until = Instant::now() + stop_at.saturating_duration_since(Instant::now()).mul_f64(SETTLING_SHARE);
    for batch in batches {
        if Instant::now() >= settle_until {
            report.problems.push("not every active batch could be looked at in time; the next sweep begins elsewhere".into());
            break;
        }
        report.batches.looked_at += 1;
        match settle(relay, batch, Duration::ZERO, settle_until).await {
            Ok(Progress::Succeeded) => report.batches.succeeded += 1,
            Ok(Progress::Failed) => report.batches.failed += 1,
            Ok(Progress::Blocked) => report.batches.blocked += 1,
            Ok(Progress::Unreachable) => report.batches.unreachable += 1,
            Ok(Progress::Ended | Progress::Waiting | Progress::UnknownBatch) => {}
            Err(error) => report.problems.push(format!("batch {batch}: {error}")),
        }
    }
    report.effects.add(relay.drive(Scope::All, stop_at).await?);
    let expired = expiry::reject_expired_requests(relay, report, stop_at).await;
    report.expired_requests = noted(expired, report)?;
    let revoked = expiry::revoke_expired_bindings(relay, report, stop_at).await;
    report.expiry_revokes = noted(revoked, report)?;
    let closed = expiry::close_withdrawn_failures(relay, report, stop_at).await;
    report.closed_requests = noted(closed, report)?;
    let withdrawn = orphans::withdraw_orphans(relay, report, stop_at).await;
    report.orphans_withdrawn = noted(withdrawn, report)?;
    for _ in 0..PURGES_MAX {
        let purged = if Instant::now() < stop_at { relay.store.run(&Purge).await?.total() } else { 0 };
        report.purged_rows += purged;
        if purged == 0 {
            break;
        }
    }
    Ok(())
}

/// A row that contradicts itself, or is held by somebody for too long, is reported; it keeps neither the other rows nor the other passes from
/// being looked at. A database that is away ends the sweep.
fn noted<T: Default>(result: Result<T, StoreError>, report: &mut SweepReport) -> Result<T, StoreError> {
    match result {
        Err(error) if !error.is_outage() => {
            if !error.is_fault() {
                tracing::error!(event = "alarm", alarm = "corruption", %error);
            }
            report.problems.push(error.to_string());
            Ok(T::default())
        }
        result => result,
    }
}
