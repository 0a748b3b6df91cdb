//! Is a delivery GitLab's own? This is the one place that decides it.
//!
//! A secret of the form `whsec_<base64>` signs deliveries as Standard Webhooks do (GitLab from 19.1 on); any other
//! is the shared token that GitLab sends along. Two secrets, of either kind, hold while they are rotated.

mod signature;

use adapters::config::Secret;
use lambda_http::http::HeaderMap;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use signature::SigningKey;

const TOKEN_HEADER: &str = "x-gitlab-token";
/// What a signing secret begins with.
const SIGNING_PREFIX: &str = "whsec_";

/// What deliveries are checked against.
pub struct Secrets {
    tokens: Vec<Secret>,
    keys: Vec<SigningKey>,
}

impl Secrets {
    /// # Errors
    /// A signing secret is malformed; the sentence does not quote it.
    pub fn new(secrets: Vec<Secret>) -> Result<Self, String> {
        let (signing, tokens): (Vec<_>, Vec<_>) = secrets.into_iter().partition(|secret| secret.expose().starts_with(SIGNING_PREFIX));
        let keys: Option<Vec<_>> = signing.iter().map(|secret| SigningKey::parse(&secret.expose()[SIGNING_PREFIX.len()..])).collect();
        let keys = keys.ok_or_else(|| {
            format!("WEBHOOK_TOKEN holds a signing secret that is not {SIGNING_PREFIX} and base64 of at least 16 bytes; copy it from GitLab's webhook again")
        })?;
        Ok(Self { tokens, keys })
    }

    /// `now` in seconds since 1970: a signed delivery is good for five minutes before and after.
    pub(crate) fn vouch_for(&self, headers: &HeaderMap, body: &[u8], now: i64) -> bool {
        self.know_the_token_of(headers) || signature::is_signed(headers, body, &self.keys, now)
    }

    /// How long it takes tells nothing about the secrets, not even their length: digests are compared, each with all.
    fn know_the_token_of(&self, headers: &HeaderMap) -> bool {
        let Some(given) = only(headers, TOKEN_HEADER) else { return false };
        let given = Sha256::digest(given);
        let matches = self.tokens.iter().map(|token| Sha256::digest(token.expose()).ct_eq(&given));
        matches.fold(Choice::from(0), |any, one| any | one).into()
    }
}

/// A header's value, where it was sent once.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use lambda_http::http::HeaderValue;

    use super::*;

    fn secrets(of: &[&str]) -> Secrets {
        Secrets::new(of.iter().map(|secret| Secret::new(*secret)).collect()).unwrap()
    }

    fn bears(given: &[&'static str], tokens: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in given {
            headers.append(TOKEN_HEADER, HeaderValue::from_static(value));
        }
        secrets(tokens).vouch_for(&headers, b"{}", 0)
    }

    #[test]
    fn the_old_and_the_new_secret_are_both_good_while_they_are_rotated() {
        assert!(bears(&["old"], &["old", "new"]) && bears(&["new"], &["old", "new"]) && bears(&["old"], &["old"]));
        for wrong in [&[][..], &[""], &["ol"], &["oldx"], &["OLD"], &["old,new"], &["old", "old"]] {
            assert!(!bears(wrong, &["old", "new"]), "{wrong:?}");
        }
        assert!(!bears(&[""], &[]), "without a secret nothing is authentic");
    }

    const SIGNING: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

    #[test]
    fn a_signing_secret_is_no_token_and_a_malformed_one_is_refused_unquoted() {
        assert!(!bears(&[SIGNING], &[SIGNING]), "it signs; who sends it has seen it");
        assert!(bears(&["old"], &["old", SIGNING]), "a shared token holds while it is replaced by a signing secret");
        for wrong in ["whsec_", "whsec_!!!!", "whsec_c2hvcnQ="] {
            let error = Secrets::new(vec![Secret::new(wrong)]).err().unwrap();
            let secret = &wrong[SIGNING_PREFIX.len()..];
            assert!(error.contains("WEBHOOK_TOKEN") && (secret.is_empty() || !error.contains(secret)), "{error}");
        }
    }
}
