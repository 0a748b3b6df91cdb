//! What the forge may answer to one call.

use std::time::Duration;

use local::gitlab::{Fault, FaultEffect};

use super::turnstile::FORGE;

/// A call that is answered later than this is given up.
const SHORT_TIMEOUT: Duration = Duration::from_millis(2_500);
/// So much later than it was asked, a late call takes effect.
pub const LATE: Duration = Duration::from_millis(3_500);
const TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    Ok,
    /// It took effect, and nobody learns of it.
    Lost,
    /// Resource lock: no effect.
    Conflict,
    /// Too many calls: no effect.
    Limited,
    /// 502 of a proxy without effect, or 500 after the effect, by turns.
    Broken,
    /// It takes effect after the caller has given it up, and maybe has died.
    Timeout,
}

impl Answer {
    pub const ALL: [Self; 6] = [Self::Ok, Self::Lost, Self::Conflict, Self::Limited, Self::Broken, Self::Timeout];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Lost => "lost answer",
            Self::Conflict => "409",
            Self::Limited => "429",
            Self::Broken => "5xx",
            Self::Timeout => "timeout",
        }
    }

    /// For reading calls, a lost or late answer is nothing but a 5xx, and nobody locks against them.
    pub fn fits(self, label: &str) -> bool {
        let is_read =
            ["read", "find", "list", "look"].iter().any(|verb| label.strip_prefix(FORGE).is_some_and(|call| call.starts_with(verb)));
        !is_read || matches!(self, Self::Limited | Self::Broken)
    }

    /// This answer to the call with this number, counted from 1.
    pub fn fault(self, call: u32) -> Option<Fault> {
        let fault = match self {
            Self::Ok => return None,
            Self::Lost => Fault::lost_answer("", "/api/"),
            Self::Conflict => Fault::resource_lock("", "/api/"),
            Self::Limited => Fault::rate_limited("", "/api/", Some(1)),
            Self::Broken if call % 2 == 1 => Fault::bad_gateway("", "/api/"),
            Self::Broken => Fault::broken("", "/api/", true),
            Self::Timeout => Fault::new("", "/api/", FaultEffect::Delay { ms: LATE.as_millis() as u64 }),
        };
        Some(Fault { method: None, skip: call - 1, ..fault })
    }

    pub fn call_timeout(self) -> Duration {
        if self == Self::Timeout { SHORT_TIMEOUT } else { TIMEOUT }
    }
}
