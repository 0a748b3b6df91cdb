//! Trouble by chance, and always the same: the same seed and the same order of calls make the same answers.

use serde::{Deserialize, Serialize};

use super::faults::{Fault, FaultEffect};

/// How much trouble there is. Shares are of all calls, or of all webhooks, from 0 to 1; those of one kind add up to at most 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chaos {
    pub seed: u64,
    /// Calls that take effect and whose answer never arrives.
    pub lost: f64,
    /// 500 after the effect.
    pub broken: f64,
    /// 502 of a proxy, without effect.
    pub bad_gateway: f64,
    /// 429, with headers and without by turns.
    pub limited: f64,
    /// 409 `Resource lock`.
    pub locked: f64,
    /// Calls that are answered `slow_ms` later.
    pub slow: f64,
    pub slow_ms: u64,
    pub webhooks_dropped: f64,
    pub webhooks_doubled: f64,
    pub webhooks_reordered: f64,
    #[serde(skip)]
    drawn: u64,
}

/// What becomes of one webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent,
    Dropped,
    Doubled,
    Reordered,
}

impl Chaos {
    /// # Errors
    /// A sentence, where shares are no shares.
    pub fn check(&self) -> Result<(), String> {
        let calls = [self.lost, self.broken, self.bad_gateway, self.limited, self.locked, self.slow];
        let webhooks = [self.webhooks_dropped, self.webhooks_doubled, self.webhooks_reordered];
        for (shares, what) in [(&calls[..], "calls"), (&webhooks[..], "webhooks")] {
            let all: f64 = shares.iter().sum();
            if shares.iter().any(|share| !(0.0..=1.0).contains(share)) || all > 1.0 {
                return Err(format!("the shares of the {what} must be from 0 to 1 and add up to at most 1: they add up to {all}"));
            }
        }
        Ok(())
    }

    /// The trouble of the next call, if it has any.
    pub(crate) fn call(&mut self) -> Option<FaultEffect> {
        let number = self.drawn;
        let limited = Fault::rate_limited("", "", number.is_multiple_of(2).then_some(1)).effect;
        self.pick(&[
            (self.lost, FaultEffect::Cut { after_effect: true }),
            (self.broken, Fault::broken("", "", true).effect),
            (self.bad_gateway, Fault::bad_gateway("", "").effect),
            (self.limited, limited),
            (self.locked, Fault::resource_lock("", "").effect),
            (self.slow, FaultEffect::Delay { ms: self.slow_ms }),
        ])
    }

    pub(crate) fn webhook(&mut self) -> Fate {
        let fates =
            [(self.webhooks_dropped, Fate::Dropped), (self.webhooks_doubled, Fate::Doubled), (self.webhooks_reordered, Fate::Reordered)];
        self.pick(&fates).unwrap_or(Fate::Sent)
    }

    fn pick<T: Clone>(&mut self, shares: &[(f64, T)]) -> Option<T> {
        let draw = self.draw();
        let mut below = 0.0;
        shares.iter().find_map(|(share, what)| {
            below += share;
            (draw < below).then(|| what.clone())
        })
    }

    /// From 0 to below 1 (SplitMix64): no generator of a crate promises the same numbers for ever.
    fn draw(&mut self) -> f64 {
        self.drawn += 1;
        let mut z = self.seed.wrapping_add(self.drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(seed: u64) -> Vec<Fate> {
        let mut chaos = Chaos { seed, webhooks_dropped: 0.2, webhooks_doubled: 0.3, webhooks_reordered: 0.1, ..Chaos::default() };
        (0..1_000).map(|_| chaos.webhook()).collect()
    }

    #[test]
    fn the_same_seed_is_the_same_trouble_in_the_shares_asked_for() {
        assert_eq!(fates(7), fates(7));
        assert_ne!(fates(7), fates(8));
        for (fate, share) in [(Fate::Dropped, 200), (Fate::Doubled, 300), (Fate::Reordered, 100), (Fate::Sent, 400)] {
            let count = fates(7).into_iter().filter(|one| *one == fate).count();
            assert!(count.abs_diff(share) < 60, "{fate:?}: {count} of 1,000");
        }
        assert!((0..100).all(|_| Chaos::default().call().is_none()), "no trouble unless asked for");
    }

    #[test]
    fn shares_that_are_none_are_refused() {
        assert!(Chaos { lost: 0.5, slow: 0.5, ..Chaos::default() }.check().is_ok());
        assert!(Chaos { lost: 0.6, slow: 0.5, ..Chaos::default() }.check().is_err());
        assert!(Chaos { webhooks_dropped: -0.1, ..Chaos::default() }.check().is_err());
    }
}
