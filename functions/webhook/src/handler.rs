//! GitLab's webhook: turns what concerns a batch into a hint for `settle`, and knows nothing else.
//!
//! Whatever is authentic is answered with 2xx, even what cannot be read: GitLab disables a hook that fails
//! often, and a lost hint only costs time, because the sweep asks the forge itself.

mod authentic;
mod event;
mod hint;

use adapters::config::{Secret, WebhookConfig};
use adapters::problem::{PROBLEM_JSON, Problem, ProblemType};
use adapters::queue::Queue;
use lambda_http::http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use lambda_http::http::{Method, Response, StatusCode};
use lambda_http::{Body, Request};
use serde_json::json;

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
    /// One secret, or the old and the new one while they are rotated.
    pub tokens: Vec<Secret>,
    /// `mr-status`.
    pub queue: Queue,
}

impl WebhookState {
    pub fn new(config: WebhookConfig) -> Self {
        Self { tokens: config.tokens, queue: Queue::connect(config.mr_status_queue_url) }
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
    if !authentic::bears_a_token(request.headers(), &state.tokens) {
        return Err(NOT_AUTHENTIC.because(
            "nothing was done, because the header X-Gitlab-Token does not hold the secret of this webhook; \
             set the same secret token in GitLab's webhook and in Muster's WEBHOOK_TOKEN",
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
        WebhookState { tokens: vec![Secret::new("local-webhook-token")], queue }
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
}
