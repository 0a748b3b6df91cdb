//! Refusals in the shapes GitLab uses: `message` as a text, an array or a map of fields, and Grape's `error`.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// A refused call: its status and the JSON body GitLab would send.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub body: Value,
}

pub(crate) type ApiResult<T = Response> = Result<T, ApiError>;

impl ApiError {
    /// `{"message": text}`
    pub fn message(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, body: json!({ "message": text.into() }) }
    }

    /// `{"message": [text]}`
    pub fn messages(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, body: json!({ "message": [text.into()] }) }
    }

    /// `{"message": {field: [text]}}`, 400
    pub fn field(field: &str, text: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, body: json!({ "message": { field: [text] } }) }
    }

    /// Grape's own check of parameters: `{"error": text}`, 400
    pub fn parameter(text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, body: json!({ "error": text.into() }) }
    }

    /// Any 400 that a GitLab service answers.
    pub fn bad(text: impl Into<String>) -> Self {
        Self::message(StatusCode::BAD_REQUEST, text)
    }

    /// `404 <what> Not Found`; GitLab says just "404 Not found" where `what` is empty.
    pub fn not_found(what: &str) -> Self {
        let text = if what.is_empty() { "404 Not found".to_owned() } else { format!("404 {what} Not Found") };
        Self::message(StatusCode::NOT_FOUND, text)
    }

    pub fn unauthorized() -> Self {
        Self::message(StatusCode::UNAUTHORIZED, "401 Unauthorized")
    }

    pub fn not_allowed() -> Self {
        Self::message(StatusCode::METHOD_NOT_ALLOWED, "405 Method Not Allowed")
    }
}

impl From<anyhow::Error> for ApiError {
    fn from(error: anyhow::Error) -> Self {
        tracing::error!(error = format!("{error:#}"), "the GitLab stand-in failed inside; the caller sees a 500");
        Self::message(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

pub(crate) fn ok(body: Value) -> Response {
    Json(body).into_response()
}

pub(crate) fn created(body: Value) -> Response {
    (StatusCode::CREATED, Json(body)).into_response()
}
