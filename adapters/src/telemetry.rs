//! Logs: one JSON object a line on standard output, where Lambda collects them.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::{Lookup, variable};

/// Starts logging for this process. Called again, or where a test has set up its own, it changes nothing.
///
/// `AWS_LAMBDA_LOG_LEVEL` (Lambda's own setting) decides the level, else the directives of `RUST_LOG`,
/// else INFO. Lines are JSON unless `AWS_LAMBDA_LOG_FORMAT` is `Text`.
pub fn init() {
    let lines = tracing_subscriber::fmt().with_env_filter(filter(&variable)).with_ansi(false).with_writer(std::io::stdout);
    let started = if wants_text(&variable) {
        // Lambda puts its own time stamp before a line of text.
        lines.without_time().try_init()
    } else {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(true).try_init()
    };
    if started.is_err() {
        tracing::debug!("logging was set up before");
    }
}

fn wants_text(lookup: &Lookup<'_>) -> bool {
    lookup("AWS_LAMBDA_LOG_FORMAT").is_some_and(|format| format.eq_ignore_ascii_case("text"))
}

fn filter(lookup: &Lookup<'_>) -> EnvFilter {
    let lambda_level = lookup("AWS_LAMBDA_LOG_LEVEL").and_then(|level| level_of(&level));
    let directives = lookup("RUST_LOG").filter(|directives| !directives.trim().is_empty());
    match (lambda_level, directives) {
        (Some(level), _) => EnvFilter::default().add_directive(level.into()),
        (None, Some(directives)) => EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).parse_lossy(directives),
        (None, None) => EnvFilter::default().add_directive(LevelFilter::INFO.into()),
    }
}

/// Lambda's levels are those of `tracing`, and FATAL besides.
fn level_of(name: &str) -> Option<LevelFilter> {
    if name.eq_ignore_ascii_case("fatal") { Some(LevelFilter::ERROR) } else { LevelFilter::from_str(name).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_for(level: Option<&str>, directives: Option<&str>) -> String {
        let lookup = |name: &str| match name {
            "AWS_LAMBDA_LOG_LEVEL" => level.map(str::to_owned),
            "RUST_LOG" => directives.map(str::to_owned),
            _ => None,
        };
        filter(&lookup).to_string()
    }

    #[test]
    fn lambdas_own_setting_wins() {
        assert_eq!(filter_for(Some("WARN"), Some("debug")), "warn");
        assert_eq!(filter_for(Some("FATAL"), None), "error");
        assert_eq!(filter_for(Some("nonsense"), None), "info");
        assert_eq!(filter_for(None, Some("shared=debug,warn")), "shared=debug,warn");
        assert_eq!(filter_for(None, Some("")), "info");
        assert_eq!(filter_for(None, None), "info");
    }

    #[test]
    fn only_a_wish_for_text_gives_up_json() {
        assert!(wants_text(&|_: &str| Some("Text".to_owned())));
        assert!(!wants_text(&|_: &str| Some("JSON".to_owned())));
        assert!(!wants_text(&|_: &str| None));
    }

    #[test]
    fn starting_twice_is_harmless() {
        init();
        init();
    }
}
