//! What has run out of time by the database's clock.

use std::time::Instant;

use adapters::forge::{Containment, Forge};
use adapters::outbound::Outbound;
use adapters::relay::{Relay, project_of};
use adapters::settlement::{carried, reconcile};
use shared::StoreError;
use shared::ids::{BatchId, OperationId, Principal, RequestKey};
use shared::read::expiry::{self, ExpiredBinding, Page};
use shared::read::{failed, round};
use shared::request::Request;
use shared::state::OperationStatus;
use shared::transactions::admit::{Admit, AdmitOutcome};
use shared::transactions::close_failed::{CloseFailed, CloseFailedOutcome};
use shared::transactions::withdraw::{WaitingEnd, Withdraw, WithdrawOutcome};

use super::{SweepReport, noted};

/// Rows read at once. Those that cannot be dealt with are skipped, so that they keep none behind them waiting.
const ROWS_MAX: u32 = 200;

/// Rejects grants that expired while they waited: code `expired`.
pub(super) async fn reject_expired_requests<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    report: &mut SweepReport,
    stop_at: Instant,
) -> Result<u32, StoreError> {
    let (mut rejected, mut left) = (0, 0);
    loop {
        let page = expiry::expired_waiting(&relay.store, Page { limit: ROWS_MAX, skip: left }).await?;
        if page.is_empty() {
            return Ok(rejected);
        }
        for operation in page {
            if Instant::now() >= stop_at {
                return Ok(rejected);
            }
            let unit = Withdraw { operation, actor: Principal::expiry(), ending: WaitingEnd::Expired };
            match noted(relay.store.run(&unit).await.map(Some), report)? {
                Some(WithdrawOutcome::Withdrawn) => rejected += 1,
                _ => left += 1,
            }
        }
    }
}

/// Admits a revoke for every access that has run out.
pub(super) async fn revoke_expired_bindings<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    report: &mut SweepReport,
    stop_at: Instant,
) -> Result<u32, StoreError> {
    let (mut admitted, mut left) = (0, 0);
    loop {
        let page = expiry::expired_bindings(&relay.store, Page { limit: ROWS_MAX, skip: left }).await?;
        if page.is_empty() {
            return Ok(admitted);
        }
        for binding in page {
            if Instant::now() >= stop_at {
                return Ok(admitted);
            }
            if revoke_expired(relay, binding, report).await? {
                admitted += 1;
            } else {
                left += 1;
            }
        }
    }
}

/// Answers whether the revoke was admitted now.
async fn revoke_expired<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    binding: ExpiredBinding,
    report: &mut SweepReport,
) -> Result<bool, StoreError> {
    let key = RequestKey::parse(binding.idempotency_key()).map_err(|why| StoreError::corrupt(why.to_string()))?;
    let unit = Admit {
        principal: Principal::expiry(),
        key,
        operation: OperationId::new(),
        request: Request::expiry_revoke(binding.subject.clone(), binding.target.clone()),
        strict_targets: true,
    };
    match noted(relay.store.run(&unit).await.map(Some), report)? {
        Some(AdmitOutcome::Admitted(_)) => return Ok(true),
        // Told already; or somebody revoked it first, or another sweep did.
        None | Some(AdmitOutcome::Replayed(_) | AdmitOutcome::BindingHeld { .. } | AdmitOutcome::Preempted | AdmitOutcome::WinnerGone) => {}
        Some(other) => {
            tracing::error!(event = "alarm", alarm = "expiry_not_revoked", subject = %binding.subject, target = %binding.target, outcome = ?other);
            report.problems.push(format!(
                "the expired access of {} to {} could not be revoked: {}",
                binding.subject,
                binding.target,
                other.name()
            ));
        }
    }
    Ok(false)
}

/// Closes FAILED grants that their requester has taken back, unless they are on the target branch after all.
pub(super) async fn close_withdrawn_failures<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    report: &mut SweepReport,
    stop_at: Instant,
) -> Result<u32, StoreError> {
    let (mut closed, mut left) = (0, 0);
    loop {
        let page = expiry::failed_withdrawn(&relay.store, Page { limit: ROWS_MAX, skip: left }).await?;
        if page.is_empty() {
            return Ok(closed);
        }
        for (operation, batch) in page {
            if Instant::now() >= stop_at {
                return Ok(closed);
            }
            match close_withdrawn(relay, operation, batch, report).await? {
                Close::Closed => closed += 1,
                Close::Merged => {}
                Close::Left => left += 1,
            }
        }
    }
}

enum Close {
    Closed,
    Merged,
    Left,
}

async fn close_withdrawn<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    operation: OperationId,
    batch: Option<BatchId>,
    report: &mut SweepReport,
) -> Result<Close, StoreError> {
    let Some(batch) = batch else {
        report.problems.push(format!("the FAILED request {operation} was never in a batch; run the audit"));
        return Ok(Close::Left);
    };
    let Some(round) = noted(round::round(&relay.store, batch).await, report)? else {
        report.problems.push(format!("the batch {batch} of the FAILED request {operation} does not exist; run the audit"));
        return Ok(Close::Left);
    };
    if let Some(carried) = carried(&relay.store, &round, None).await? {
        match relay.forge.target_contains(&project_of(&round), &carried).await {
            Ok(Containment::No) => {}
            Ok(Containment::Yes { commit }) => {
                reconcile(&relay.store, &round, commit).await?;
                return Ok(if failed_still(relay, &operation).await? { Close::Left } else { Close::Merged });
            }
            Ok(Containment::OtherContent { commit, .. }) => {
                report
                    .problems
                    .push(format!("{operation} is FAILED, yet {commit} on the target branch carries its token with other content"));
                return Ok(Close::Left);
            }
            Err(error) => {
                report.problems.push(format!("whether {operation} is on the target branch is not known: {error}"));
                return Ok(Close::Left);
            }
        }
    }
    let unit = CloseFailed { operation, actor: Principal::muster() };
    let is_closed = noted(relay.store.run(&unit).await.map(Some), report)? == Some(CloseFailedOutcome::Closed);
    Ok(if is_closed { Close::Closed } else { Close::Left })
}

/// Another batch than the one that was reconciled may hold it.
async fn failed_still<F: Forge, E: Outbound>(relay: &Relay<F, E>, operation: &OperationId) -> Result<bool, StoreError> {
    let known = failed::carriers(&relay.store, operation).await?;
    Ok(known.is_some_and(|known| known.status == OperationStatus::Failed))
}
