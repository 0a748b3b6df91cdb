//! Answers as HTTP carries them.

use adapters::problem::{PROBLEM_JSON, Problem};
use lambda_http::Body;
use lambda_http::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use lambda_http::http::{Response, StatusCode};
use serde::Serialize;

use crate::problems;

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Result<Response<Body>, Problem> {
    let body = serde_json::to_string(body).map_err(|why| problems::internal(&why))?;
    Ok(response(status, "application/json", body))
}

/// A JSON answer that names the address of what it is about.
pub(crate) fn json_at(status: StatusCode, location: &str, body: &impl Serialize) -> Result<Response<Body>, Problem> {
    let mut answer = json(status, body)?;
    set(&mut answer, LOCATION, location);
    Ok(answer)
}

pub(crate) fn problem(problem: &Problem) -> Response<Body> {
    let status = StatusCode::from_u16(problem.kind.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = problem.to_json();
    let mut answer = response(status, PROBLEM_JSON, body.to_string());
    if let Some(seconds) = problem.retry_after_s {
        set(&mut answer, RETRY_AFTER, &seconds.to_string());
    }
    if let Some(methods) = body["allow"].as_str() {
        set(&mut answer, ALLOW, methods);
    }
    if status == StatusCode::UNAUTHORIZED {
        set(&mut answer, WWW_AUTHENTICATE, "Bearer");
    }
    answer
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut answer = Response::new(Body::Text(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Every answer is the state of one moment.
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn set(answer: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}
