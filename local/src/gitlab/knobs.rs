//! The lies of a busy forge, each a knob.

use serde::{Deserialize, Serialize};

use super::settings::Settings;

/// How the forge behaves as a whole. Counters say how many times it still happens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Knobs {
    /// Time a mergeability check stays at one step if nobody reads.
    pub check_step_ms: u64,
    /// Time until the pipeline of a new head appears.
    pub pipeline_appears_ms: u64,
    /// Time a merge holds the merge request locked.
    pub merge_takes_ms: u64,
    /// The merge request stays locked and is merged in fact, but is never marked so.
    pub merges_stuck_locked: u32,
    /// Time until a new branch can be seen by `POST merge_requests`.
    pub branch_lag_ms: u64,
    /// Merges that answer 405 although the merge request is mergeable.
    pub merge_405: u32,
    /// Merges that answer 200 and neither merge nor arm.
    pub merge_unarmed: u32,
    /// Closes that lose against a merge: the answer and the merge request say closed, the change is on the target.
    pub closed_yet_merged: u32,
    /// Time after such a close until the merge lands.
    pub closed_yet_merged_after_ms: u64,
    /// Webhooks that are not sent at all.
    pub webhooks_dropped: u32,
    /// Webhooks that are sent twice (same Idempotency-Key).
    pub webhooks_doubled: u32,
    /// Webhooks that the next one overtakes.
    pub webhooks_reordered: u32,
    /// Webhooks that are sent `webhooks_delay_ms` later.
    pub webhooks_delayed: u32,
    pub webhooks_delay_ms: u64,
    /// Webhooks with another secret than the hook's: of a forger, or from before the secret was changed.
    pub webhooks_forged: u32,
    /// Only an executable hook is sent anything.
    pub webhook_status: HookStatus,
    /// The hook is disabled for a while after so many failures in a row, as on gitlab.com after 4; 0: never.
    pub webhook_disabled_after: u32,
    /// Reads of a merge request that answer states, and a field, of a version that is not written yet.
    pub unknown_values: u32,
    /// Reads of a merge request whose `sha` and `diff_refs` are null.
    pub sha_withheld: u32,
    /// Time for which lists show a merge request as they first showed it.
    pub lists_stale_ms: u64,
    /// How the project is set up.
    pub project: Settings,
}

/// GitLab's `alert_status` of a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookStatus {
    #[default]
    Executable,
    TemporarilyDisabled,
    Disabled,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            check_step_ms: 30,
            pipeline_appears_ms: 30,
            merge_takes_ms: 0,
            merges_stuck_locked: 0,
            branch_lag_ms: 0,
            merge_405: 0,
            merge_unarmed: 0,
            closed_yet_merged: 0,
            closed_yet_merged_after_ms: 0,
            webhooks_dropped: 0,
            webhooks_doubled: 0,
            webhooks_reordered: 0,
            webhooks_delayed: 0,
            webhooks_delay_ms: 0,
            webhooks_forged: 0,
            webhook_status: HookStatus::default(),
            webhook_disabled_after: 0,
            unknown_values: 0,
            sha_withheld: 0,
            lists_stale_ms: 0,
            project: Settings::default(),
        }
    }
}

/// Takes one from a counter; `true` if there was one to take.
pub(crate) fn take(counter: &mut u32) -> bool {
    let any = *counter > 0;
    *counter = counter.saturating_sub(1);
    any
}
