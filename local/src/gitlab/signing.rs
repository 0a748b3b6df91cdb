//! Standard Webhooks, as GitLab signs deliveries from 19.1 on.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{KeyInit as _, Mac as _};

const PREFIX: &str = "whsec_";

/// The value of `webhook-signature`; `None` where the secret is a plain token, which is sent instead.
pub(crate) fn signature(secret: &str, id: &str, timestamp: &str, body: &str) -> Option<String> {
    let key = BASE64_STANDARD.decode(secret.strip_prefix(PREFIX)?).ok()?;
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&key).ok()?;
    mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
    Some(format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes())))
}

/// A secret of the same kind that is not this one.
pub(crate) fn another(secret: &str) -> String {
    if secret.starts_with(PREFIX) { format!("{PREFIX}{}", BASE64_STANDARD.encode([7; 32])) } else { format!("not-{secret}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_is_signed_as_it_says() {
        // From the documentation of Standard Webhooks.
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "{\"test\": 2432232314}");
        assert_eq!(signed.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
        assert_eq!(signature("plain", "a", "b", "c"), None);
        assert!(another("plain") != "plain" && another(secret).starts_with(PREFIX));
    }
}
