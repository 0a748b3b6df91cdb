//! The message to `settle`: where to look, and nothing that it should believe.

use lambda_http::http::HeaderMap;
use serde::Serialize;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::event::Event;

/// Version of the message's form.
const VERSION: u32 = 1;
/// GitLab's and Standard Webhooks' names for what stays the same when a delivery is repeated.
const DELIVERY_HEADERS: [&str; 2] = ["idempotency-key", "webhook-id"];
const DELIVERY_ID_MAX: usize = 255;

#[derive(Debug, Serialize)]
pub(crate) struct Hint<'e> {
    v: u32,
    project_id: u64,
    mr_iid: u64,
    source_branch: &'e str,
    kind: &'static str,
    /// The header that GitLab repeats, else the SHA-256 of the body.
    pub delivery_id: String,
    /// RFC 3339, UTC: for people who look into the queue. Nothing is decided by it.
    received_at: String,
}

impl<'e> Hint<'e> {
    pub fn of(event: &'e Event, headers: &HeaderMap, body: &[u8]) -> Self {
        Self {
            v: VERSION,
            project_id: event.project_id,
            mr_iid: event.mr_iid,
            source_branch: &event.source_branch,
            kind: event.kind,
            delivery_id: delivery_id(headers, body),
            received_at: rfc3339(OffsetDateTime::now_utc()),
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

fn delivery_id(headers: &HeaderMap, body: &[u8]) -> String {
    let given = DELIVERY_HEADERS.iter().find_map(|name| headers.get(*name)?.to_str().ok());
    match given.map(str::trim) {
        Some(id) if (1..=DELIVERY_ID_MAX).contains(&id.len()) => id.to_owned(),
        _ => hex::encode(Sha256::digest(body)),
    }
}

fn rfc3339(moment: OffsetDateTime) -> String {
    moment.format(format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use lambda_http::http::HeaderValue;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_hint_says_where_to_look() {
        let event = Event { kind: "pipeline", project_id: 7, mr_iid: 3, source_branch: "muster/default/00".into() };
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", HeaderValue::from_static("d-1"));
        let mut sent: Value = serde_json::from_str(&Hint::of(&event, &headers, b"{}").to_json()).expect("JSON");
        let received_at = sent["received_at"].take();
        assert!(received_at.as_str().is_some_and(|at| at.len() == 27 && at.ends_with('Z')), "{received_at}");
        assert_eq!(
            sent,
            json!({"v": 1, "project_id": 7, "mr_iid": 3, "source_branch": "muster/default/00", "kind": "pipeline", "delivery_id": "d-1", "received_at": null})
        );
    }

    #[test]
    fn a_delivery_without_a_name_is_named_by_its_body() {
        let named = |name, value| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).expect("a header"));
            delivery_id(&headers, b"abc")
        };
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(named("idempotency-key", "k"), "k");
        assert_eq!(named("idempotency-key", " "), digest);
        assert_eq!(named("idempotency-key", &"k".repeat(256)), digest);
        assert_eq!(delivery_id(&HeaderMap::new(), b"abc"), digest);
    }
}
