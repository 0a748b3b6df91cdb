//! How long an invocation may still take.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Kept back for what is under way when the time is over: one call of the forge (15 s), its record, the answer.
const MARGIN: Duration = Duration::from_secs(18);
/// Assumed where the runtime does not tell: well below every function's time-out of 60 s.
const UNKNOWN: Duration = Duration::from_secs(40);

/// The moment at which new work is no longer begun. `deadline_ms` is the runtime's, as UNIX time in
/// milliseconds; one that has passed already means that it is not known (as under `cargo lambda watch`).
#[expect(clippy::disallowed_methods, reason = "the runtime's deadline is a wall-clock time; nothing of it is stored")]
pub fn stop_at(deadline_ms: u64) -> Instant {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_millis(deadline_ms).checked_sub(now).filter(|left| !left.is_zero());
    Instant::now() + left.map_or(UNKNOWN, |left| left.saturating_sub(MARGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_in_the_past_is_unknown_and_still_leaves_time_to_work() {
        assert!(stop_at(600_000) > Instant::now() + Duration::from_secs(30));
        assert!(stop_at(0) > Instant::now() + Duration::from_secs(30));
    }
}
