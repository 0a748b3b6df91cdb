//! The signature of Standard Webhooks: HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.<raw body>`.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use lambda_http::http::HeaderMap;
use sha2::Sha256;
use subtle::Choice;

use super::only;

const ID_HEADER: &str = "webhook-id";
const TIMESTAMP_HEADER: &str = "webhook-timestamp";
const SIGNATURE_HEADER: &str = "webhook-signature";
/// Seconds. An older delivery may be one that somebody recorded and plays again.
const WINDOW_S: u64 = 300;
/// A sender signs with its old and its new key; more is not honest work.
const SIGNATURES_MAX: usize = 8;
const KEY_BYTES_MIN: usize = 16;

/// Secrets are written with padding and without.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

/// A keyed HMAC. No log shows it.
pub(super) struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Of the base64 after `whsec_`.
    pub fn parse(text: &str) -> Option<Self> {
        let key = BASE64.decode(text).ok().filter(|key| key.len() >= KEY_BYTES_MIN)?;
        Hmac::new_from_slice(&key).ok().map(Self)
    }

    fn mac(&self, parts: [&[u8]; 3]) -> Hmac<Sha256> {
        let [id, timestamp, body] = parts;
        let mut mac = self.0.clone();
        for part in [id, b".", timestamp, b".", body] {
            mac.update(part);
        }
        mac
    }
}

/// Has one of the keys made one of the signatures, within the window? Each key is tried on each signature, so that
/// the time it takes tells only how many there are.
pub(super) fn is_signed(headers: &HeaderMap, body: &[u8], keys: &[SigningKey], now: i64) -> bool {
    let (Some(id), Some(timestamp), Some(signatures)) =
        (only(headers, ID_HEADER), only(headers, TIMESTAMP_HEADER), only(headers, SIGNATURE_HEADER))
    else {
        return false;
    };
    if id.is_empty() || !is_recent(timestamp, now) {
        return false;
    }
    let given = signatures_of(signatures);
    let mut any = Choice::from(0);
    for key in keys {
        for signature in &given {
            let is_right = key.mac([id, timestamp, body]).verify_slice(signature).is_ok();
            any |= Choice::from(u8::from(is_right));
        }
    }
    any.into()
}

/// Those of version 1; a version of tomorrow is passed over.
fn signatures_of(header: &[u8]) -> Vec<Vec<u8>> {
    let Ok(text) = std::str::from_utf8(header) else { return Vec::new() };
    let of_version_1 = text.split_ascii_whitespace().take(SIGNATURES_MAX).filter_map(|one| one.strip_prefix("v1,"));
    of_version_1.filter_map(|one| BASE64.decode(one).ok()).collect()
}

fn is_recent(timestamp: &[u8], now: i64) -> bool {
    let seconds = std::str::from_utf8(timestamp).ok().and_then(|text| text.parse::<i64>().ok());
    seconds.is_some_and(|seconds| seconds.abs_diff(now) <= WINDOW_S)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use lambda_http::http::HeaderValue;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const BODY: &[u8] = br#"{"object_kind":"merge_request"}"#;
    const OLD: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    const NEW: &str = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY";

    fn key(text: &str) -> SigningKey {
        SigningKey::parse(text).unwrap()
    }

    fn sign(by: &str, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mac = key(by).mac([id.as_bytes(), timestamp.as_bytes(), body]).finalize().into_bytes();
        format!("v1,{}", BASE64.encode(mac))
    }

    fn headers(id: &str, timestamp: &str, signature: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [(ID_HEADER, id), (TIMESTAMP_HEADER, timestamp), (SIGNATURE_HEADER, signature)] {
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn good(headers: &HeaderMap, body: &[u8]) -> bool {
        is_signed(headers, body, &[key(OLD), key(NEW)], NOW)
    }

    /// The example of the Standard Webhooks specification's reference libraries.
    #[test]
    fn the_published_example_is_authentic() {
        let body = br#"{"test": 2432232314}"#;
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let headers = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", signature);
        let keys = [key("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")];
        assert!(is_signed(&headers, body, &keys, 1_614_265_330));
        assert!(!is_signed(&headers, br#"{"test": 2432232315}"#, &keys, 1_614_265_330));
    }

    #[test]
    fn either_key_is_good_while_they_are_rotated_and_no_other() {
        let now = NOW.to_string();
        let (old, new) = (sign(OLD, "id-1", &now, BODY), sign(NEW, "id-1", &now, BODY));
        let foreign = sign("Zm9yZWlnbmZvcmVpZ25mb3JlaWdu", "id-1", &now, BODY);
        for signatures in
            [old.clone(), new.clone(), format!("{foreign} {old}"), format!("v2,xyz {foreign} {new}"), format!("v1a,AAAA v1,! {new}")]
        {
            assert!(good(&headers("id-1", &now, &signatures), BODY), "{signatures}");
        }
        let bare = old.trim_start_matches("v1,").to_owned();
        let many = format!("{} {old}", [foreign.as_str(); SIGNATURES_MAX].join(" "));
        for signatures in [foreign, String::new(), bare.clone(), format!("v2,{bare}"), "v1,".into(), "v1,AAAA".into(), many] {
            assert!(!good(&headers("id-1", &now, &signatures), BODY), "{signatures}");
        }
        assert!(!is_signed(&headers("id-1", &now, &old), BODY, &[], NOW), "without a key nothing is authentic");
    }

    #[test]
    fn whatever_is_changed_after_signing_is_seen() {
        let now = NOW.to_string();
        let signature = sign(OLD, "id-1", &now, BODY);
        assert!(good(&headers("id-1", &now, &signature), BODY));
        assert!(!good(&headers("id-1", &now, &signature), br#"{"object_kind":"merge_requesT"}"#));
        assert!(!good(&headers("id-1", &now, &signature), b""));
        assert!(!good(&headers("id-2", &now, &signature), BODY));
        assert!(!good(&headers("id-1", &(NOW + 1).to_string(), &signature), BODY));
        // The parts are joined by a dot; moved between them it is another delivery all the same.
        assert!(!good(&headers("id", &now, &sign(OLD, "id.1", &now, BODY)), BODY));
    }

    #[test]
    fn a_delivery_is_good_for_five_minutes_either_way() {
        for (offset, expected) in [(0, true), (-300, true), (300, true), (-301, false), (301, false), (-86_400, false)] {
            let then = (NOW + offset).to_string();
            assert_eq!(good(&headers("id-1", &then, &sign(OLD, "id-1", &then, BODY)), BODY), expected, "{offset}");
        }
        for then in ["", "now", "1e9", "99999999999999999999", "-9223372036854775808"] {
            assert!(!good(&headers("id-1", then, &sign(OLD, "id-1", then, BODY)), BODY), "{then}");
        }
    }

    #[test]
    fn a_header_that_is_missing_or_doubled_decides_nothing() {
        let now = NOW.to_string();
        let signature = sign(OLD, "id-1", &now, BODY);
        for name in [ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER] {
            let mut missing = headers("id-1", &now, &signature);
            missing.remove(name);
            assert!(!good(&missing, BODY), "{name}");
            let mut doubled = headers("id-1", &now, &signature);
            let value = doubled.get(name).unwrap().clone();
            doubled.append(name, value);
            assert!(!good(&doubled, BODY), "{name}");
        }
        assert!(!good(&headers("", &now, &sign(OLD, "", &now, BODY)), BODY));
    }
}
