//! How long GitLab asks us to wait: any of its headers may be missing.

use std::time::SystemTime;

use reqwest::header::HeaderMap;

/// Where nothing says how long.
const DEFAULT_S: u64 = 30;
/// No header makes us wait longer than this.
const LONGEST_S: u64 = 3_600;

/// Seconds to wait, at least 1. Dates are measured against the answer's own `Date`, so that no clock of ours takes part.
pub(super) fn retry_after_s(headers: &HeaderMap) -> u64 {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let date = |name: &str| text(name).and_then(|value| httpdate::parse_http_date(value).ok());
    let until = |at: SystemTime| {
        let left = at.duration_since(date("date")?);
        Some(left.map_or(1, |left| left.as_secs()))
    };
    let named = text("retry-after").and_then(|value| value.parse().ok());
    let seconds = named
        .or_else(|| date("retry-after").and_then(until))
        .or_else(|| {
            let epoch_s: u64 = text("ratelimit-reset")?.parse().ok()?;
            until(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(epoch_s.min(u64::from(u32::MAX))))
        })
        .unwrap_or(DEFAULT_S);
    seconds.clamp(1, LONGEST_S)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn wait(pairs: &[(&'static str, &'static str)]) -> u64 {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        retry_after_s(&headers)
    }

    const NOW: (&str, &str) = ("date", "Wed, 21 Oct 2015 07:28:00 GMT"); // Epoch 1445412480.

    #[test]
    fn each_header_alone_is_obeyed() {
        assert_eq!(wait(&[("retry-after", "17")]), 17);
        assert_eq!(wait(&[NOW, ("retry-after", "Wed, 21 Oct 2015 07:29:30 GMT")]), 90);
        assert_eq!(wait(&[NOW, ("ratelimit-reset", "1445412525")]), 45);
    }

    #[test]
    fn without_a_usable_header_we_wait_a_while() {
        assert_eq!(wait(&[]), DEFAULT_S);
        assert_eq!(wait(&[("retry-after", "soon")]), DEFAULT_S);
        assert_eq!(wait(&[("ratelimit-reset", "1445412525")]), DEFAULT_S);
    }

    #[test]
    fn a_date_in_the_past_or_far_away_is_bounded() {
        assert_eq!(wait(&[NOW, ("ratelimit-reset", "1445412000")]), 1);
        assert_eq!(wait(&[("retry-after", "0")]), 1);
        assert_eq!(wait(&[("retry-after", "999999")]), LONGEST_S);
        assert_eq!(wait(&[NOW, ("ratelimit-reset", "18446744073709551615")]), LONGEST_S);
    }
}
