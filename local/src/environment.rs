//! The one place of this crate that reads the environment.

/// The value of `name`, or `None` if it is unset, empty or not Unicode.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the place that the lint names")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
