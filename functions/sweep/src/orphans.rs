//! Merge requests on our branches that no active batch stands behind.

use std::time::Instant;

use adapters::forge::{Forge, MrState, ProjectRef};
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use shared::StoreError;
use shared::ids::{branch_prefix, parse_branch};
use shared::read::{round, waiting};

use super::SweepReport;

/// Withdraws every open merge request on a partition's prefix whose token is not an active batch's.
pub(super) async fn withdraw_orphans<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    report: &mut SweepReport,
    stop_at: Instant,
) -> Result<u32, StoreError> {
    let mut withdrawn = 0;
    for partition in waiting::open_partitions(&relay.store).await? {
        if Instant::now() >= stop_at {
            break;
        }
        let Some((path, id, target_branch)) = round::project(&relay.store, &partition).await? else { continue };
        let project = ProjectRef { path, id, target_branch };
        let open = match relay.forge.open_with_prefix(&project, &branch_prefix(&partition)).await {
            Ok(open) => open,
            Err(error) => {
                report.problems.push(format!("the open merge requests of {partition} could not be listed: {error}"));
                continue;
            }
        };
        for merge_request in open {
            let batch = match parse_branch(&merge_request.branch) {
                Some((_, token)) => round::find_by_token(&relay.store, token).await?,
                None => None,
            };
            let owner = match batch {
                Some(batch) => round::round(&relay.store, batch).await?,
                None => None,
            };
            // An active batch withdraws its own, by its own effect.
            if owner.is_some_and(|round| round.status.is_active()) {
                continue;
            }
            tracing::error!(event = "alarm", alarm = "orphan_merge_request", branch = merge_request.branch, iid = merge_request.iid, batch = ?batch);
            match relay.forge.withdraw(&project, merge_request.iid).await {
                Ok(facts) if facts.state == MrState::Closed => withdrawn += 1,
                Ok(facts) => report.problems.push(format!("the orphan {} is {:?} after its withdrawal", merge_request.url, facts.state)),
                Err(error) => report.problems.push(format!("the orphan {} could not be withdrawn: {error}", merge_request.url)),
            }
        }
    }
    Ok(withdrawn)
}
