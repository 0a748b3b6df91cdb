//! Is a delivery GitLab's own? This is the one place that decides it.

use adapters::config::Secret;
use lambda_http::http::HeaderMap;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

const TOKEN_HEADER: &str = "x-gitlab-token";

/// Does the header hold one of the secrets? How long it takes tells nothing about them, not even their length:
/// digests are compared, each with all of them.
pub(crate) fn bears_a_token(headers: &HeaderMap, tokens: &[Secret]) -> bool {
    let mut values = headers.get_all(TOKEN_HEADER).iter();
    let (Some(given), None) = (values.next(), values.next()) else { return false };
    let given = Sha256::digest(given.as_bytes());
    let matches = tokens.iter().map(|token| Sha256::digest(token.expose()).ct_eq(&given));
    matches.fold(Choice::from(0), |any, one| any | one).into()
}

#[cfg(test)]
mod tests {
    use lambda_http::http::HeaderValue;

    use super::*;

    fn bears(given: &[&'static str], tokens: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in given {
            headers.append(TOKEN_HEADER, HeaderValue::from_static(value));
        }
        bears_a_token(&headers, &tokens.iter().map(|token| Secret::new(*token)).collect::<Vec<_>>())
    }

    #[test]
    fn the_old_and_the_new_secret_are_both_good_while_they_are_rotated() {
        assert!(bears(&["old"], &["old", "new"]) && bears(&["new"], &["old", "new"]) && bears(&["old"], &["old"]));
        for wrong in [&[][..], &[""], &["ol"], &["oldx"], &["OLD"], &["old,new"], &["old", "old"]] {
            assert!(!bears(wrong, &["old", "new"]), "{wrong:?}");
        }
        assert!(!bears(&[""], &[]), "without a secret nothing is authentic");
    }
}
