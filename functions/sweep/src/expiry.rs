//! What has run out of time by the database's clock.

use std::time::Instant;

use adapters::forge::{Containment, Forge};
use adapters::outbound::Outbound;
use adapters::relay::{Relay, project_of};
use adapters::settlement::{carried, reconcile};
use shared::StoreError;
use shared::ids::{OperationId, Principal, RequestKey};
use shared::read::{expiry, round};
use shared::request::Request;
use shared::transactions::admit::{Admit, AdmitOutcome};
use shared::transactions::close_failed::{CloseFailed, CloseFailedOutcome};
use shared::transactions::withdraw::{WaitingEnd, Withdraw, WithdrawOutcome};

use super::{SweepReport, noted};

/// Rows of one pass; the next sweep takes the rest.
const ROWS_MAX: u32 = 200;

/// Rejects grants that expired while they waited: code `expired`.
pub(super) async fn reject_expired_requests<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    report: &mut SweepReport,
    stop_at: Instant,
) -> Result<u32, StoreError> {
    let mut rejected = 0;
    for operation in expiry::expired_waiting(&relay.store, ROWS_MAX).await? {
        if Instant::now() >= stop_at {
            break;
        }
        let unit = Withdraw { operation, actor: Principal::expiry(), ending: WaitingEnd::Expired };
        if noted(relay.store.run(&unit).await.map(Some), report)? == Some(WithdrawOutcome::Withdrawn) {
            rejected += 1;
        }
    }
    Ok(rejected)
}

/// Admits a revoke for every access that has run out.
pub(super) async fn revoke_expired_bindings<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    report: &mut SweepReport,
    stop_at: Instant,
) -> Result<u32, StoreError> {
    let mut admitted = 0;
    for binding in expiry::expired_bindings(&relay.store, ROWS_MAX).await? {
        if Instant::now() >= stop_at {
            break;
        }
        let key = RequestKey::parse(binding.idempotency_key()).map_err(|why| StoreError::corrupt(why.to_string()))?;
        let unit = Admit {
            principal: Principal::expiry(),
            key,
            operation: OperationId::new(),
            request: Request::expiry_revoke(binding.subject.clone(), binding.target.clone()),
            strict_targets: true,
        };
        let Some(outcome) = noted(relay.store.run(&unit).await.map(Some), report)? else { continue };
        match outcome {
            AdmitOutcome::Admitted(_) => admitted += 1,
            // Somebody revoked it first, or another sweep did.
            AdmitOutcome::Replayed(_) | AdmitOutcome::BindingHeld { .. } | AdmitOutcome::Preempted | AdmitOutcome::WinnerGone => {}
            other => {
                tracing::error!(event = "alarm", alarm = "expiry_not_revoked", subject = %binding.subject, target = %binding.target, outcome = ?other);
                report.problems.push(format!(
                    "the expired access of {} to {} could not be revoked: {}",
                    binding.subject,
                    binding.target,
                    other.name()
                ));
            }
        }
    }
    Ok(admitted)
}

/// Closes FAILED grants that their requester has taken back, unless they are on the target branch after all.
pub(super) async fn close_withdrawn_failures<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    report: &mut SweepReport,
    stop_at: Instant,
) -> Result<u32, StoreError> {
    let mut closed = 0;
    for (operation, batch) in expiry::failed_withdrawn(&relay.store, ROWS_MAX).await? {
        if Instant::now() >= stop_at {
            break;
        }
        let Some(batch) = batch else {
            report.problems.push(format!("the FAILED request {operation} was never in a batch; run the audit"));
            continue;
        };
        let Some(round) = noted(round::round(&relay.store, batch).await, report)? else {
            report.problems.push(format!("the batch {batch} of the FAILED request {operation} does not exist; run the audit"));
            continue;
        };
        if let Some(carried) = carried(&relay.store, &round, None).await? {
            match relay.forge.target_contains(&project_of(&round), &carried).await {
                Ok(Containment::No) => {}
                Ok(Containment::Yes { commit }) => {
                    reconcile(&relay.store, &round, commit).await?;
                    continue;
                }
                Ok(Containment::OtherContent { commit, .. }) => {
                    report
                        .problems
                        .push(format!("{operation} is FAILED, yet {commit} on the target branch carries its token with other content"));
                    continue;
                }
                Err(error) => {
                    report.problems.push(format!("whether {operation} is on the target branch is not known: {error}"));
                    continue;
                }
            }
        }
        let unit = CloseFailed { operation, actor: Principal::muster() };
        if noted(relay.store.run(&unit).await.map(Some), report)? == Some(CloseFailedOutcome::Closed) {
            closed += 1;
        }
    }
    Ok(closed)
}
