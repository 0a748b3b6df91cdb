//! What goes wrong on purpose: answers put in place of ours, answers lost on the way, and the lies of a busy forge.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{ConnectInfo, Request, State},
    http::{HeaderName, HeaderValue, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

use super::{app::App, connection::Connection, knobs::take};

/// Applies to the next `times` calls whose method is `method` (any, if absent) and whose path contains `path`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    #[serde(default)]
    pub method: Option<String>,
    /// Looked for in the path and query, both as sent and percent-decoded.
    pub path: String,
    #[serde(default = "once")]
    pub times: u32,
    /// Matching calls let through before the fault begins.
    #[serde(default)]
    pub skip: u32,
    pub effect: FaultEffect,
}

fn once() -> u32 {
    1
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FaultEffect {
    /// Answers this in place of ours; `after_effect`: the call takes effect all the same.
    Answer {
        status: u16,
        #[serde(default)]
        body: String,
        #[serde(default = "json_type")]
        content_type: String,
        #[serde(default)]
        headers: Vec<(String, String)>,
        #[serde(default)]
        after_effect: bool,
    },
    /// Closes the connection without a byte of answer; `after_effect`: once the call took effect.
    Cut {
        #[serde(default)]
        after_effect: bool,
    },
    /// Answers as usual, this much later; the call takes effect after the delay.
    Delay { ms: u64 },
}

fn json_type() -> String {
    "application/json".to_owned()
}

impl Fault {
    pub fn new(method: &str, path: &str, effect: FaultEffect) -> Self {
        Self { method: Some(method.to_owned()), path: path.to_owned(), times: 1, skip: 0, effect }
    }

    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// The call takes effect, its answer never arrives.
    pub fn lost_answer(method: &str, path: &str) -> Self {
        Self::new(method, path, FaultEffect::Cut { after_effect: true })
    }

    /// 409 `Resource lock`, which a retry cures.
    pub fn resource_lock(method: &str, path: &str) -> Self {
        Self::new(method, path, FaultEffect::json(409, r#"{"message":"409 Conflict: Resource lock"}"#))
    }

    /// 429 with `Retry-After` and the `RateLimit-…` headers where seconds are given; bare, as GitLab also does, otherwise.
    pub fn rate_limited(method: &str, path: &str, retry_after_s: Option<u64>) -> Self {
        let headers = retry_after_s.map_or_else(Vec::new, |seconds| {
            let reset = time::OffsetDateTime::now_utc().unix_timestamp() + i64::try_from(seconds).unwrap_or(i64::MAX / 2);
            vec![
                ("Retry-After".to_owned(), seconds.to_string()),
                ("RateLimit-Limit".to_owned(), "2000".to_owned()),
                ("RateLimit-Remaining".to_owned(), "0".to_owned()),
                ("RateLimit-Reset".to_owned(), reset.to_string()),
            ]
        });
        let effect = FaultEffect::Answer {
            status: 429,
            body: "Retry later\n".to_owned(),
            content_type: "text/plain".to_owned(),
            headers,
            after_effect: false,
        };
        Self::new(method, path, effect)
    }

    /// 500, before or after the call took effect.
    pub fn broken(method: &str, path: &str, after_effect: bool) -> Self {
        let effect = FaultEffect::Answer {
            status: 500,
            body: r#"{"message":"500 Internal Server Error"}"#.to_owned(),
            content_type: json_type(),
            headers: Vec::new(),
            after_effect,
        };
        Self::new(method, path, effect)
    }

    /// 502 with a proxy's HTML page.
    pub fn bad_gateway(method: &str, path: &str) -> Self {
        let effect = FaultEffect::Answer {
            status: 502,
            body: "<!DOCTYPE html><html><head><title>GitLab is not responding (502)</title></head><body><h1>502</h1></body></html>"
                .to_owned(),
            content_type: "text/html".to_owned(),
            headers: Vec::new(),
            after_effect: false,
        };
        Self::new(method, path, effect)
    }
}

impl FaultEffect {
    pub fn json(status: u16, body: &str) -> Self {
        Self::Answer { status, body: body.to_owned(), content_type: json_type(), headers: Vec::new(), after_effect: false }
    }
}

/// Stands before every route: applies the first fault that matches, and logs the call with the status that was sent.
pub(crate) async fn intercept(
    State(app): State<Arc<App>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().to_string();
    let target = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let path = request.uri().path().to_owned();
    if path.starts_with("/_standin") {
        return next.run(request).await;
    }
    let response = match find_fault(&app, &method, &target) {
        None => Some(take_effect(next, request, Duration::ZERO).await),
        Some(FaultEffect::Delay { ms }) => Some(take_effect(next, request, Duration::from_millis(ms)).await),
        Some(FaultEffect::Cut { after_effect }) => {
            if after_effect {
                drop(take_effect(next, request, Duration::ZERO).await);
            }
            connection.cut();
            None
        }
        Some(FaultEffect::Answer { status, body, content_type, headers, after_effect }) => {
            if after_effect {
                drop(take_effect(next, request, Duration::ZERO).await);
            }
            Some(answer(status, body, &content_type, &headers))
        }
    };
    let status = response.as_ref().map_or(0, |response| response.status().as_u16());
    tracing::debug!(method, path, status, "gitlab stand-in");
    app.world().calls.push((method, path, status));
    response.unwrap_or_else(|| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// Runs the call to its end even if the caller hangs up, maybe long before it begins: GitLab does not stop half-way either.
async fn take_effect(next: Next, request: Request, delay: Duration) -> Response {
    let later = async move {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        next.run(request).await
    };
    match tokio::spawn(later).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, "a call to the GitLab stand-in did not end");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn find_fault(app: &App, method: &str, target: &str) -> Option<FaultEffect> {
    let decoded = percent_encoding::percent_decode_str(target).decode_utf8_lossy().into_owned();
    let mut world = app.world();
    let matches = |fault: &Fault| {
        fault.times > 0
            && fault.method.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
            && (target.contains(&fault.path) || decoded.contains(&fault.path))
    };
    let mut found = None;
    for fault in world.faults.iter_mut().filter(|fault| matches(fault)) {
        if !take(&mut fault.skip) {
            fault.times -= 1;
            found = Some(fault.effect.clone());
            break;
        }
    }
    world.faults.retain(|fault| fault.times > 0);
    found.or_else(|| world.chaos.call())
}

fn answer(status: u16, body: String, content_type: &str, headers: &[(String, String)]) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let all = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain([("content-type", content_type)]);
    for (name, value) in all {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
