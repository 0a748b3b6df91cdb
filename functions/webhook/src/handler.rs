//! GitLab's webhook: turns what concerns a batch into a hint for `settle`, and knows nothing else.
//!
//! Whatever is authentic is answered with 2xx, even what cannot be read: GitLab disables a hook that fails
//! often, and a lost hint only costs time, because the sweep asks the forge itself.

mod authentic;
mod event;
mod hint;

use adapters::config::WebhookConfig;
use adapters::problem::{PROBLEM_JSON, Problem, ProblemType};
use adapters::queue::Queue;
use lambda_http::http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use lambda_http::http::{Method, Response, StatusCode};
use lambda_http::{Body, Request};
use serde_json::json;
use time::OffsetDateTime;

pub use authentic::Secrets;
use event::{Event, Ignored};
use hint::Hint;

const NOT_AUTHENTIC: ProblemType = ProblemType { status: 401, name: "not-authentic", title: "The delivery is not authentic" };
const METHOD_NOT_ALLOWED: ProblemType =
    ProblemType { status: 405, name: "method-not-allowed", title: "The path does not take this method" };
const UNAVAILABLE: ProblemType = ProblemType { status: 503, name: "unavailable", title: "The queue cannot be reached" };
/// Seconds. GitLab itself does not send again; an operator who presses "resend" may.
const RETRY_OUTAGE_S: u32 = 5;

/// What a delivery is checked against, and where hints go.
pub struct WebhookState {
    /// One, or the old and the new one while they are rotated.
    pub secrets: Secrets,
    /// `mr-status`.
    pub queue: Queue,
}

impl WebhookState {
    /// # Errors
    /// A sentence naming the secret's variable, where a signing secret is malformed.
    pub fn new(config: WebhookConfig) -> Result<Self, String> {
        Ok(Self { secrets: Secrets::new(config.tokens)?, queue: Queue::connect(config.mr_status_queue_url) })
    }
}

/// Answers one delivery.
///
/// # Errors
/// Never: whatever goes wrong is an answer, of type `application/problem+json`.
pub async fn handle(state: &WebhookState, request: Request) -> Result<Response<Body>, lambda_http::Error> {
    let answer = receive(state, &request).await.unwrap_or_else(|problem| {
        tracing::warn!(event = "problem", problem = problem.kind.name, status = problem.kind.status, detail = problem.detail);
        refusal(&problem)
    });
    Ok(answer)
}

async fn receive(state: &WebhookState, request: &Request) -> Result<Response<Body>, Problem> {
    if request.method() != Method::POST {
        return Err(METHOD_NOT_ALLOWED.because("the webhook takes POST, as GitLab sends it").with("allow", "POST"));
    }
    let now = OffsetDateTime::now_utc().unix_timestamp();
    if !state.secrets.vouch_for(request.headers(), request.body().as_ref(), now) {
        return Err(NOT_AUTHENTIC.because(
            "nothing was done, because neither X-Gitlab-Token holds the secret of this webhook nor is the delivery signed with it \
             within the last five minutes; set the same secret in GitLab's webhook and in Muster's WEBHOOK_TOKEN, and look at the clock",
        ));
    }
    let event = match Event::read(request.body().as_ref()) {
        Ok(event) => event,
        Err(ignored) => return Ok(accepted(&ignored)),
    };
    let hint = Hint::of(&event, request.headers(), request.body().as_ref());
    state.queue.send(hint.to_json()).await.map_err(|error| {
        let detail = format!("the delivery is authentic, but {error}; the next sweep finds the same by asking GitLab");
        UNAVAILABLE.because(detail).retry_after(RETRY_OUTAGE_S)
    })?;
    tracing::info!(
        event = "hint_sent",
        kind = event.kind,
        project_id = event.project_id,
        mr_iid = event.mr_iid,
        delivery_id = hint.delivery_id
    );
    Ok(answer(StatusCode::ACCEPTED, "application/json", json!({ "outcome": "sent" }).to_string()))
}

fn accepted(ignored: &Ignored) -> Response<Body> {
    tracing::info!(event = "delivery_ignored", reason = ignored.reason());
    answer(StatusCode::OK, "application/json", json!({ "outcome": "ignored", "reason": ignored.reason() }).to_string())
}

fn refusal(problem: &Problem) -> Response<Body> {
    let status = StatusCode::from_u16(problem.kind.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = answer(status, PROBLEM_JSON, problem.to_json().to_string());
    if let Some(seconds) = problem.retry_after_s {
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    answer
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut answer = Response::new(Body::Text(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use aws_sdk_sqs::config::retry::RetryConfig;
    use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};

    use super::*;

    const MERGE_REQUEST: &str = include_str!("../../../events/http-webhook-merge-request.json");
    const PIPELINE: &str = include_str!("../../../events/http-webhook-pipeline.json");

    /// A queue at a port of this machine that nobody listens on.
    fn state() -> WebhookState {
        let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = adapters::queue::SdkConfig::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .credentials_provider(SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "test")))
            .region(Region::new("eu-west-1"))
            .retry_config(RetryConfig::disabled())
            .endpoint_url(format!("http://{refused}"))
            .build();
        let queue = Queue::with_config(format!("http://{refused}/000000000000/mr-status"), &config);
        WebhookState { secrets: Secrets::new(vec![adapters::config::Secret::new("local-webhook-token")]).unwrap(), queue }
    }

    async fn status_of(event: &str, change: impl FnOnce(&mut Request)) -> (u16, String) {
        let mut request = lambda_http::request::from_str(event).unwrap();
        change(&mut request);
        let answer = handle(&state(), request).await.unwrap();
        (answer.status().as_u16(), String::from_utf8(answer.body().as_ref().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn whatever_is_authentic_is_accepted_and_nothing_else() {
        let nothing = |_: &mut Request| {};
        for event in [MERGE_REQUEST, PIPELINE] {
            let (status, body) = status_of(event, nothing).await;
            assert_eq!(status, 503, "it was meant for the queue: {body}");
            assert!(body.contains("sweep") && !body.contains("local-webhook-token"), "{body}");
            let forge = |request: &mut Request| drop(request.headers_mut().insert("x-gitlab-token", HeaderValue::from_static("other")));
            assert_eq!(status_of(event, forge).await.0, 401);
            let strip = |request: &mut Request| drop(request.headers_mut().remove("x-gitlab-token"));
            assert_eq!(status_of(event, strip).await.0, 401);
        }
        for garbage in [&b""[..], b"{", b"[]", b"null", b"\xff\xfe", b"{\"object_kind\":\"push\"}", &[b'['; 1 << 20]] {
            let body = |request: &mut Request| *request.body_mut() = Body::Binary(garbage.to_vec());
            let (status, answer) = status_of(MERGE_REQUEST, body).await;
            assert_eq!(status, 200, "{answer}");
        }
        let get = |request: &mut Request| *request.method_mut() = Method::GET;
        assert_eq!(status_of(MERGE_REQUEST, get).await.0, 405);
    }

    const SIGNING_KEY: &[u8; 32] = b"01234567890123456789012345678901";
    const SIGNING_SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

    /// Signs a delivery as GitLab 19.1 does, so many seconds ago.
    fn sign(request: &mut Request, ago_s: i64) {
        use base64::Engine;
        use hmac::{KeyInit, Mac};
        let timestamp = (OffsetDateTime::now_utc().unix_timestamp() - ago_s).to_string();
        let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(SIGNING_KEY).unwrap();
        mac.update(format!("delivery-1.{timestamp}.").as_bytes());
        mac.update(request.body().as_ref());
        let signature = format!("v1,{}", base64::prelude::BASE64_STANDARD.encode(mac.finalize().into_bytes()));
        let headers = request.headers_mut();
        headers.remove("x-gitlab-token");
        for (name, value) in [("webhook-id", "delivery-1".to_owned()), ("webhook-timestamp", timestamp), ("webhook-signature", signature)] {
            headers.insert(name, HeaderValue::from_str(&value).unwrap());
        }
    }

    async fn signed_status(change: impl FnOnce(&mut Request)) -> u16 {
        let secrets = Secrets::new([SIGNING_SECRET, "an-old-token"].map(adapters::config::Secret::new).to_vec()).unwrap();
        let state = WebhookState { secrets, ..state() };
        let mut request = lambda_http::request::from_str(MERGE_REQUEST).unwrap();
        change(&mut request);
        handle(&state, request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn a_signed_delivery_is_accepted_without_a_token_and_never_when_it_was_changed_or_recorded() {
        assert_eq!(signed_status(|request| sign(request, 0)).await, 503, "it was meant for the queue");
        assert_eq!(signed_status(|request| sign(request, 290)).await, 503);
        assert_eq!(signed_status(|request| sign(request, 400)).await, 401, "somebody plays it again");
        let tampered = |request: &mut Request| {
            sign(request, 0);
            let text = String::from_utf8(request.body().as_ref().to_vec()).unwrap();
            *request.body_mut() = Body::Text(text + " ");
        };
        assert_eq!(signed_status(tampered).await, 401);
        assert_eq!(signed_status(|_| ()).await, 401, "the token of the sample is none of the secrets");
        let leaked = |request: &mut Request| drop(request.headers_mut().insert("x-gitlab-token", HeaderValue::from_static(SIGNING_SECRET)));
        assert_eq!(signed_status(leaked).await, 401, "a signing secret is never sent");
        let old = |request: &mut Request| drop(request.headers_mut().insert("x-gitlab-token", HeaderValue::from_static("an-old-token")));
        assert_eq!(signed_status(old).await, 503, "the token holds while it is replaced");
    }
}
