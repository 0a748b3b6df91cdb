//! The limits of a partition: their names, ranges and defaults, said once.

use serde::{Deserialize, Serialize};

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $default:literal in $least:literal..=$most:literal),+ $(,)?) => {
        /// What bounds the rounds of one partition. Seconds end in `_s`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Limits { $($(#[$doc])* pub $name: u64),+ }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default),+ }
            }
        }

        impl Limits {
            /// In the order of their columns.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            /// In the order of [`Self::NAMES`].
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),+]
            }

            fn out_of_range(&self) -> Vec<String> {
                let mut problems = Vec::new();
                $(if !($least..=$most).contains(&self.$name) {
                    problems.push(format!("{} {} is not one of {} to {}", stringify!($name), self.$name, $least as u64, $most as u64));
                })+
                problems
            }
        }

        /// Limits as an operator gives them; what is left out keeps its value.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct LimitsWish { $(pub $name: Option<u64>),+ }

        impl LimitsWish {
            /// `false`: no limit has this name.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = Some(value),)+
                    _ => return false,
                }
                true
            }

            fn laid_over(&self, base: &Limits) -> Limits {
                Limits { $($name: self.$name.unwrap_or(base.$name)),+ }
            }
        }
    };
}

limits! {
    /// Members of one batch, at most.
    max_requests: 100 in 1..=1_000,
    /// Content of one batch, at most, in bytes; a round takes its first request whatever its size.
    max_bytes: 8_388_608 in 262_144..=268_435_456,
    /// Fewer are held back until one of them has waited for `max_wait_s`.
    min_requests: 1 in 1..=1_000,
    max_wait_s: 300 in 0..=2_592_000,
    /// A batch without a merge request fails after this.
    not_started_s: 900 in 1..=2_592_000,
    no_progress_s: 3_600 in 1..=2_592_000,
    total_s: 21_600 in 1..=2_592_000,
    /// Enough to halve a full batch down to its one bad member.
    content_attempts: 8 in 1..=1_000,
    infra_attempts: 5 in 1..=1_000,
}

/// ceil(log2(max_requests)) + 1: the batches it takes to find the one bad member of a full one.
pub fn least_content_attempts(max_requests: u64) -> u64 {
    u64::from(u64::BITS - max_requests.saturating_sub(1).leading_zeros()) + 1
}

impl LimitsWish {
    /// The limits as they would be. An omitted `content_attempts` grows with `max_requests` where it must.
    pub fn over(&self, base: &Limits) -> Limits {
        let mut limits = self.laid_over(base);
        if self.content_attempts.is_none() {
            limits.content_attempts = limits.content_attempts.max(least_content_attempts(limits.max_requests));
        }
        limits
    }
}

impl Limits {
    /// Everything that is wrong with them, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.out_of_range();
        if self.min_requests > self.max_requests {
            problems.push(format!("min_requests {} exceeds max_requests {}", self.min_requests, self.max_requests));
        }
        let least = least_content_attempts(self.max_requests);
        if self.content_attempts < least {
            problems.push(format!(
                "content_attempts {} is too few to find one bad request among {}; give at least {least}, or leave it out",
                self.content_attempts, self.max_requests
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_suffice_to_halve_a_full_batch() {
        let by_size = [1, 2, 3, 4, 5, 8, 9, 100, 128, 129, 1_000].map(least_content_attempts);
        assert_eq!(by_size, [1, 2, 3, 3, 4, 4, 5, 8, 8, 9, 11]);
    }

    #[test]
    fn defaults_are_valid_and_an_omitted_limit_keeps_its_value() {
        assert_eq!(Limits::default().problems(), Vec::<String>::new());
        let base = Limits { max_wait_s: 7, ..Limits::default() };
        let wish = LimitsWish { max_requests: Some(1_000), ..LimitsWish::default() };
        let limits = wish.over(&base);
        assert_eq!((limits.max_wait_s, limits.content_attempts), (7, 11));
        assert_eq!(limits.problems(), Vec::<String>::new());
    }

    #[test]
    fn every_bad_limit_is_told() {
        let wish = LimitsWish {
            max_requests: Some(0),
            max_bytes: Some(1),
            content_attempts: Some(0),
            total_s: Some(2_592_001),
            ..LimitsWish::default()
        };
        let problems = wish.over(&Limits::default()).problems();
        for name in ["max_requests 0", "max_bytes 1", "content_attempts 0", "total_s 2592001", "min_requests 1 exceeds"] {
            assert!(problems.iter().any(|problem| problem.starts_with(name)), "{name}: {problems:?}");
        }
    }
}
