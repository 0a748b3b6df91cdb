//! The HTTP API as a client speaks it: events in API Gateway's own form, through the real handler.

use ::admit::AdmitState;
use adapters::config::OperatorRule;
use lambda_http::http::HeaderMap;
use muster_tests::World;
use serde_json::{Value, json};
use shared::Store;

pub const ALICE: &str = "alice@example.com";
pub const BOB: &str = "bob@example.com";
/// The one caller whose token says that he is an operator.
pub const OLGA: &str = "olga@example.com";

pub struct Api {
    state: AdmitState,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Api {
    pub fn of(world: &World) -> Self {
        Self::on(world.store())
    }

    pub fn on(store: Store) -> Self {
        let operators = Some(OperatorRule { claim: "groups".into(), value: "operators".into() });
        Self { state: AdmitState { store, operators, dev_principal: None, strict_targets: false } }
    }

    pub fn strict(mut self) -> Self {
        self.state.strict_targets = true;
        self
    }

    /// Sends an event as it is.
    pub async fn send(&self, event: &Value) -> Answer {
        let request = lambda_http::request::from_str(&event.to_string()).expect("an event of API Gateway");
        let answer = ::admit::handle(&self.state, request).await.expect("every request is answered");
        let (parts, body) = answer.into_parts();
        let body = serde_json::from_slice(body.as_ref()).expect("every answer is JSON");
        let answer = Answer { status: parts.status.as_u16(), headers: parts.headers, body };
        answer.assert_form();
        answer
    }

    pub async fn post(&self, who: &str, key: &str, body: &Value) -> Answer {
        self.send(&with_header(event(who, "POST", "/requests", "", Some(&body.to_string())), "idempotency-key", key)).await
    }

    pub async fn get(&self, who: &str, path: &str) -> Answer {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        self.send(&event(who, "GET", path, query, None)).await
    }

    pub async fn delete(&self, who: &str, path: &str) -> Answer {
        self.send(&event(who, "DELETE", path, "", None)).await
    }

    /// Admits a grant of `db` that must be admitted, and answers its operation.
    pub async fn grant(&self, who: &str, subject: &str) -> String {
        let answer = self.post(who, subject, &grant_body(subject)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.text("operation_id")
    }
}

impl Answer {
    pub fn text(&self, member: &str) -> String {
        self.body[member].as_str().unwrap_or_else(|| panic!("no {member} in {self:?}")).to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    /// The members `member` of the entries of a list.
    pub fn each(&self, list: &str, member: &str) -> Vec<String> {
        let entries = self.body[list].as_array().unwrap_or_else(|| panic!("no {list} in {self:?}"));
        entries.iter().map(|entry| entry[member].as_str().unwrap_or_else(|| panic!("no {member} in {entry}")).to_owned()).collect()
    }

    /// Status and last part of `type`.
    pub fn problem(&self) -> (u16, String) {
        (self.status, self.text("type").trim_start_matches("/problems/").to_owned())
    }

    /// What holds for every answer.
    fn assert_form(&self) {
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        let content_type = self.header("content-type");
        if self.status < 400 {
            assert_eq!(content_type, Some("application/json"), "{self:?}");
            return;
        }
        assert_eq!(content_type, Some("application/problem+json"), "{self:?}");
        assert_eq!(self.body["status"], self.status, "{self:?}");
        assert!(self.text("type").starts_with("/problems/") && !self.text("title").is_empty() && !self.text("detail").is_empty());
        assert_eq!(self.header("retry-after").is_some(), self.status == 503, "{self:?}");
        assert_eq!(self.header("allow").is_some(), self.status == 405, "{self:?}");
        assert_eq!(self.header("www-authenticate").is_some(), self.status == 401, "{self:?}");
    }
}

pub fn grant_body(subject: &str) -> Value {
    json!({ "subject_id": subject, "target_key": "db", "action": "grant" })
}

/// An event of an HTTP API whose JWT authorizer let `who` in.
pub fn event(who: &str, method: &str, path: &str, query: &str, body: Option<&str>) -> Value {
    let groups = if who == OLGA { "[developers operators]" } else { "[developers]" };
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": query,
        "headers": { "content-type": "application/json" },
        "requestContext": {
            "stage": "$default",
            "http": { "method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.7", "userAgent": "test" },
            "authorizer": { "jwt": { "claims": { "sub": who, "groups": groups }, "scopes": null } },
        },
        "body": body, "isBase64Encoded": false,
    })
}

pub fn with_header(mut event: Value, name: &str, value: &str) -> Value {
    event["headers"][name] = json!(value);
    event
}
