//! One HTTP call to GitLab: its limits, its secret, and the answers that mean the same for every verb.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LINK, LOCATION};
use reqwest::{Method, Response, Url};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use super::GitLabOptions;
use super::address::{BadGitLabOptions, base_url};
use super::circuit::Circuit;
use super::probe::{CallProbe, Moment};
use super::rate_limit::retry_after_s;
use super::reply::{Reply, is_html, words};
use crate::forge::ForgeError;

/// Largest body we take into memory.
pub(super) const BODY_LIMIT: usize = 8 * 1024 * 1024;

const USER_AGENT: &str = concat!("muster/", env!("CARGO_PKG_VERSION"));

/// What a call left us with where the answer was too large to take in.
pub(super) enum Taken {
    Whole(Reply),
    /// The body exceeds [`BODY_LIMIT`].
    TooLarge,
}

pub(super) struct Client {
    /// Made by the first call: reading the machine's root certificates costs a cold start several milliseconds.
    http: OnceCell<reqwest::Client>,
    /// Ends with a slash.
    base: Url,
    token: HeaderValue,
    connect_timeout: Duration,
    call_timeout: Duration,
    calls: AtomicU64,
    circuit: Circuit,
    pub probe: Option<Arc<dyn CallProbe>>,
}

impl Client {
    pub fn new(options: GitLabOptions) -> Result<Self, BadGitLabOptions> {
        let base = base_url(&options.base_url)?;
        let mut token = HeaderValue::from_str(&options.token).map_err(|_| BadGitLabOptions::Token)?;
        if token.is_empty() {
            return Err(BadGitLabOptions::Token);
        }
        // Keeps it out of every debug text.
        token.set_sensitive(true);
        let GitLabOptions { connect_timeout, call_timeout, .. } = options;
        Ok(Self {
            http: OnceCell::new(),
            base,
            token,
            connect_timeout,
            call_timeout,
            calls: AtomicU64::new(0),
            circuit: Circuit::default(),
            probe: None,
        })
    }

    pub fn base(&self) -> &str {
        self.base.as_str()
    }

    async fn http(&self, call: &'static str) -> Result<&reqwest::Client, ForgeError> {
        let build = async || {
            reqwest::Client::builder()
                .user_agent(USER_AGENT)
                .connect_timeout(self.connect_timeout)
                .timeout(self.call_timeout)
                // A redirect would turn a POST into a GET, or carry our token to another host.
                .redirect(reqwest::redirect::Policy::none())
                .build()
        };
        self.http.get_or_try_init(build).await.map_err(|error| ForgeError::Unexpected {
            call,
            status: 0,
            detail: format!("no HTTP client can be made, check the machine's root certificates: {}", chain(error)),
        })
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub async fn get(&self, call: &'static str, route: &str) -> Result<Reply, ForgeError> {
        self.whole(call, Method::GET, route, None).await
    }

    pub async fn post(&self, call: &'static str, route: &str, body: &impl Serialize) -> Result<Reply, ForgeError> {
        self.whole(call, Method::POST, route, Some(json(call, body)?)).await
    }

    pub async fn put(&self, call: &'static str, route: &str, body: &impl Serialize) -> Result<Reply, ForgeError> {
        self.whole(call, Method::PUT, route, Some(json(call, body)?)).await
    }

    pub async fn delete(&self, call: &'static str, route: &str) -> Result<Reply, ForgeError> {
        self.whole(call, Method::DELETE, route, None).await
    }

    /// A GraphQL query; `TooLarge` is the caller's to avoid by asking for less.
    pub async fn graphql(&self, call: &'static str, body: &impl Serialize) -> Result<Taken, ForgeError> {
        self.take(call, Method::POST, "graphql", Some(json(call, body)?)).await
    }

    /// Lower-case hex SHA-256 of a body of any length, which never is in memory whole.
    pub async fn sha256_of(&self, call: &'static str, route: &str) -> Result<String, ForgeError> {
        self.circuit.admit(Instant::now())?;
        self.noted(self.hashed(call, route).await)
    }

    async fn hashed(&self, call: &'static str, route: &str) -> Result<String, ForgeError> {
        let mut response = self.send(call, Method::GET, route, None).await?;
        if !response.status().is_success() {
            return match take_body(call, self.call_timeout, response).await? {
                Taken::Whole(reply) => Err(reply.unexpected()),
                Taken::TooLarge => Err(too_large(call)),
            };
        }
        let mut hash = Sha256::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| lost(self.call_timeout, error))? {
            hash.update(&chunk);
        }
        Ok(hex::encode(hash.finalize()))
    }

    async fn whole(&self, call: &'static str, method: Method, route: &str, body: Option<Vec<u8>>) -> Result<Reply, ForgeError> {
        match self.take(call, method, route, body).await? {
            Taken::Whole(reply) => Ok(reply),
            Taken::TooLarge => Err(too_large(call)),
        }
    }

    async fn take(&self, call: &'static str, method: Method, route: &str, body: Option<Vec<u8>>) -> Result<Taken, ForgeError> {
        self.circuit.admit(Instant::now())?;
        let asking = async {
            let response = self.send(call, method, route, body).await?;
            take_body(call, self.call_timeout, response).await
        };
        self.noted(asking.await)
    }

    fn noted<T>(&self, result: Result<T, ForgeError>) -> Result<T, ForgeError> {
        self.circuit.note(Instant::now(), result.as_ref().err());
        result
    }

    /// `route` is relative to `/api/v4/`, but for `graphql`, which has no version.
    async fn send(&self, call: &'static str, method: Method, route: &str, body: Option<Vec<u8>>) -> Result<Response, ForgeError> {
        let prefix = if route == "graphql" { "api/" } else { "api/v4/" };
        let url = self.base.join(&format!("{prefix}{route}")).map_err(|error| ForgeError::Unexpected {
            call,
            status: 0,
            detail: format!("no URL can be made for it: {error}"),
        })?;
        let mut request = self.http(call).await?.request(method, url).header("private-token", self.token.clone());
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.pass(call, Moment::Before);
        let answer = request.send().await;
        self.pass(call, Moment::After);
        answer.map_err(|error| lost(self.call_timeout, error))
    }

    fn pass(&self, call: &'static str, moment: Moment) {
        if let Some(probe) = &self.probe {
            probe.reached(call, moment);
        }
    }
}

async fn take_body(call: &'static str, limit: Duration, mut response: Response) -> Result<Taken, ForgeError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| lost(limit, error))? {
        if body.len() + chunk.len() > BODY_LIMIT {
            return Ok(Taken::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    judge(call, response.status().as_u16(), response.headers(), body).map(Taken::Whole)
}

/// The part of the classification that is the same for every verb.
fn judge(call: &'static str, status: u16, headers: &HeaderMap, body: Vec<u8>) -> Result<Reply, ForgeError> {
    let said = || {
        let reply = Reply { call, status, body: body.clone(), next_page: None };
        format!("{status} {}", reply.text()).trim_end().to_owned()
    };
    match status {
        429 => Err(ForgeError::RateLimited { retry_after_s: retry_after_s(headers) }),
        408 | 500.. => Err(ForgeError::Unreachable { detail: said() }),
        301 | 308 => {
            let to = headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("an unnamed place");
            Err(ForgeError::NotFound { what: format!("this project under its old name any more: it has moved to {to}") })
        }
        // A proxy refuses a large body with a page of its own; that is about the body, not about reaching GitLab.
        413 => Ok(Reply { call, status, body, next_page: None }),
        _ if is_html(&body) => Err(ForgeError::Unreachable { detail: said() }),
        401 => Err(ForgeError::Unauthorized { detail: said() }),
        403 if words(&body).contains("read-only") => Err(ForgeError::Unreachable { detail: said() }),
        403 => Err(ForgeError::Unauthorized { detail: said() }),
        _ => Ok(Reply { call, status, body, next_page: next_page(headers) }),
    }
}

/// Query string of the page that `Link: rel="next"` names. Its host is ignored: behind a proxy it may be another,
/// and our token goes to one host only.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get(LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    let target = next.split_once('<')?.1.split_once('>')?.0;
    target.split_once('?').map(|(_, query)| query.to_owned())
}

fn lost(limit: Duration, error: reqwest::Error) -> ForgeError {
    let detail = if error.is_timeout() { format!("no answer within {} s", limit.as_secs_f32()) } else { chain(error) };
    ForgeError::Unreachable { detail }
}

/// The error with its sources, without the URL.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

fn too_large(call: &'static str) -> ForgeError {
    ForgeError::Unexpected { call, status: 200, detail: format!("its body exceeds {BODY_LIMIT} bytes") }
}

fn json(call: &'static str, body: &impl Serialize) -> Result<Vec<u8>, ForgeError> {
    serde_json::to_vec(body).map_err(|error| ForgeError::Unexpected {
        call,
        status: 0,
        detail: format!("our body cannot be written as JSON: {error}"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn judged(status: u16, body: &str) -> Result<Reply, ForgeError> {
        judge("x", status, &HeaderMap::new(), body.as_bytes().to_vec())
    }

    #[test]
    fn what_means_the_same_for_every_verb_is_told_apart_by_status_and_body() {
        use ForgeError::{RateLimited, Unauthorized, Unreachable};
        assert!(matches!(judged(408, r#"{"error":"Request timed out"}"#), Err(Unreachable { .. })));
        assert!(matches!(judged(500, ""), Err(Unreachable { .. })));
        assert!(matches!(judged(502, "<html>"), Err(Unreachable { .. })));
        assert!(matches!(judged(200, "<html>sign in</html>"), Err(Unreachable { .. })));
        assert!(matches!(judged(404, "<html>"), Err(Unreachable { .. })));
        assert!(matches!(judged(401, r#"{"message":"401 Unauthorized"}"#), Err(Unauthorized { .. })));
        assert!(matches!(judged(403, r#"{"error":"insufficient_scope"}"#), Err(Unauthorized { .. })));
        let read_only = r#"{"message":"You cannot perform write operations on a read-only instance"}"#;
        assert!(matches!(judged(403, read_only), Err(Unreachable { .. })));
        assert_eq!(judged(429, "Retry later").unwrap_err(), RateLimited { retry_after_s: 30 });
        for status in [200, 201, 204, 400, 404, 405, 406, 409, 413, 422] {
            assert_eq!(judged(status, r#"{"message":"m"}"#).unwrap().status, status);
        }
        assert_eq!(judged(413, "<html>413</html>").unwrap().status, 413);
    }

    #[test]
    fn a_renamed_project_is_named_and_not_followed() {
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("https://h/api/v4/projects/7"))]);
        let error = judge("x", 301, &headers, Vec::new()).unwrap_err();
        assert!(matches!(&error, ForgeError::NotFound { what } if what.contains("projects/7")), "{error}");
    }

    #[test]
    fn the_next_page_is_taken_from_the_link_but_never_its_host() {
        let link = r#"<https://inner.example/api/v4/x?page=1&per_page=2>; rel="first", <https://inner.example/api/v4/x?page=3&per_page=2>; rel="next""#;
        let headers = HeaderMap::from_iter([(LINK, HeaderValue::from_static(link))]);
        assert_eq!(next_page(&headers).as_deref(), Some("page=3&per_page=2"));
        assert_eq!(next_page(&HeaderMap::new()), None);
    }
}
