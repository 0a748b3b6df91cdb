//! One budget for all calls of a process: a GitLab that asked us to wait, or is down, is left alone by every verb at once.
//!
//! Without it a sweep over many batches would ask each of them into the same wall, 15 s at a time, and would use up what a
//! rate limit still leaves to others.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::forge::ForgeError;

/// After so many calls in a row that left their effect unknown, GitLab is taken for down.
const FAILURES_MAX: u32 = 8;
/// However long GitLab asked us to wait, after this one call finds out whether it still does.
const HOLD_MAX: Duration = Duration::from_secs(60);
/// Then one call in this time finds out whether it is back.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Circuit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    open: Option<(Instant, Why)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Limited,
    Down,
}

impl Circuit {
    /// # Errors
    /// What the last answers said, while it is of no use to ask again.
    pub fn admit(&self, now: Instant) -> Result<(), ForgeError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((until, why)) = state.open.filter(|(until, _)| now < *until) else { return Ok(()) };
        let left_s = (until - now).as_secs_f64().ceil() as u64;
        Err(match why {
            Why::Limited => ForgeError::RateLimited { retry_after_s: left_s },
            Why::Down => {
                // The caller that comes when the time is over asks for all of them.
                state.failures = FAILURES_MAX;
                ForgeError::Unreachable {
                    detail: format!("not asked, because {FAILURES_MAX} calls in a row failed; asked again in {left_s} s"),
                }
            }
        })
    }

    /// Takes in what a call came to.
    pub fn note(&self, now: Instant, error: Option<&ForgeError>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(ForgeError::RateLimited { retry_after_s }) => {
                state.failures = 0;
                state.open = Some((now + Duration::from_secs(*retry_after_s).min(HOLD_MAX), Why::Limited));
                tracing::warn!(event = "forge_circuit", state = "limited", for_s = retry_after_s);
            }
            Some(ForgeError::Unreachable { detail }) => {
                state.failures = state.failures.saturating_add(1);
                if state.failures >= FAILURES_MAX {
                    state.open = Some((now + PAUSE, Why::Down));
                    tracing::error!(event = "forge_circuit", state = "down", for_s = PAUSE.as_secs(), detail);
                }
            }
            _ => {
                if state.open.take().is_some() {
                    tracing::info!(event = "forge_circuit", state = "closed");
                }
                state.failures = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn unreachable() -> ForgeError {
        ForgeError::Unreachable { detail: "refused".into() }
    }

    #[test]
    fn a_limit_holds_for_every_call_until_its_time_is_over() {
        let (circuit, start) = (Circuit::default(), Instant::now());
        assert_eq!(circuit.admit(start), Ok(()));
        circuit.note(start, Some(&ForgeError::RateLimited { retry_after_s: 17 }));
        let later = start + Duration::from_millis(5_500);
        assert_eq!(circuit.admit(later), Err(ForgeError::RateLimited { retry_after_s: 12 }));
        assert_eq!(circuit.admit(start + Duration::from_secs(17)), Ok(()));
    }

    #[test]
    fn a_forge_that_is_down_is_asked_by_one_call_at_a_time() {
        let (circuit, start) = (Circuit::default(), Instant::now());
        for _ in 1..FAILURES_MAX {
            circuit.note(start, Some(&unreachable()));
            assert_eq!(circuit.admit(start), Ok(()));
        }
        circuit.note(start, Some(&unreachable()));
        assert!(matches!(circuit.admit(start), Err(ForgeError::Unreachable { detail }) if detail.contains("not asked")));
        let over = start + PAUSE;
        assert_eq!(circuit.admit(over), Ok(()));
        circuit.note(over, Some(&unreachable()));
        assert!(circuit.admit(over).is_err(), "one more failure is enough now");
        circuit.note(over + PAUSE, None);
        assert_eq!(circuit.admit(over + PAUSE), Ok(()));
        circuit.note(over + PAUSE, Some(&unreachable()));
        assert_eq!(circuit.admit(over + PAUSE), Ok(()), "an answer begins the count anew");
    }

    #[test]
    fn an_answer_that_we_do_not_like_is_an_answer() {
        let (circuit, now) = (Circuit::default(), Instant::now());
        for _ in 0..2 * FAILURES_MAX {
            circuit.note(now, Some(&unreachable()));
            circuit.note(now, Some(&ForgeError::Unauthorized { detail: "401".into() }));
        }
        assert_eq!(circuit.admit(now), Ok(()));
    }
}
