//! One call as a handler sees it: who asked is checked, the project is found, query and body are one set of parameters.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{FromRequest, OriginalUri, Query, RawPathParams, Request},
    http::{HeaderMap, StatusCode, Uri},
};
use serde_json::{Map, Value};

use super::{
    app::App,
    errors::{ApiError, ApiResult},
};

/// Parameters of a call by name; arrays of the query (`refs[]=a`) are arrays here.
#[derive(Debug, Default)]
pub(crate) struct Params(pub Map<String, Value>);

impl Params {
    pub fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        }
    }

    /// As `text`, but an empty text counts as not given, as in most of GitLab's filters.
    pub fn filled(&self, name: &str) -> Option<String> {
        self.text(name).filter(|text| !text.is_empty())
    }

    pub fn flag(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| matches!(text.to_lowercase().as_str(), "true" | "1" | "on" | "t" | "yes" | "y"))
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    pub fn list(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some(Value::Array(items)) => items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect(),
            Some(Value::String(text)) => text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// Fails as Grape does, naming every parameter that is missing: `a is missing, b is missing`.
    pub fn require(&self, names: &[&str]) -> ApiResult<()> {
        let missing: Vec<String> =
            names.iter().filter(|name| !self.0.contains_key(**name)).map(|name| format!("{name} is missing")).collect();
        if !missing.is_empty() {
            return Err(ApiError::parameter(missing.join(", ")));
        }
        match names.iter().find(|name| self.0.get(**name).is_some_and(|value| value.as_str() == Some(""))) {
            Some(empty) => Err(ApiError::parameter(format!("{empty} is empty"))),
            None => Ok(()),
        }
    }

    /// The value of a parameter that `require` has seen, as text.
    pub fn expect(&self, name: &str) -> ApiResult<String> {
        self.text(name).ok_or_else(|| ApiError::parameter(format!("{name} is invalid")))
    }
}

pub(crate) struct Call {
    pub app: Arc<App>,
    pub params: Params,
    pub uri: Uri,
    path: Vec<(String, String)>,
}

impl Call {
    /// A part of the path, percent-decoded.
    pub fn path(&self, name: &str) -> ApiResult<&str> {
        let found = self.path.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).ok_or_else(|| ApiError::not_found(""))
    }

    /// A numeric part of the path.
    pub fn id(&self, name: &str) -> ApiResult<u64> {
        self.path(name)?.parse().map_err(|_not_a_number| ApiError::parameter(format!("{name} is invalid")))
    }
}

impl FromRequest<Arc<App>> for Call {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        authorize(app, &parts.headers)?;
        let path: Vec<(String, String)> =
            match <RawPathParams as axum::extract::FromRequestParts<()>>::from_request_parts(&mut parts, &()).await {
                Ok(params) => params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
                Err(_not_utf8) => return Err(ApiError::bad("400 Bad request")),
            };
        if let Some((_, id)) = path.iter().find(|(key, _)| key == "id")
            && *id != app.project.id.to_string()
            && *id != app.project.path
        {
            return Err(ApiError::not_found("Project"));
        }
        let mut params = Params::default();
        let pairs =
            Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(|_malformed| ApiError::parameter("the query is malformed"))?;
        for (key, value) in pairs.0 {
            match key.strip_suffix("[]") {
                None => drop(params.0.insert(key, Value::String(value))),
                Some(name) => match params.0.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
                    Value::Array(items) => items.push(Value::String(value)),
                    other => *other = Value::Array(vec![Value::String(value)]),
                },
            }
        }
        // Nested routers shorten `parts.uri`; links to other pages need the whole.
        let uri = parts.extensions.get::<OriginalUri>().map_or_else(|| parts.uri.clone(), |whole| whole.0.clone());
        let content_type = parts.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
        let body = Bytes::from_request(Request::from_parts(parts, body), &()).await.map_err(|_too_large| ApiError {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            body: serde_json::json!({ "error": "Request Entity Too Large" }),
        })?;
        if !body.is_empty() {
            params.0.extend(parse_body(&content_type, &body)?);
        }
        Ok(Self { app: Arc::clone(app), params, uri, path })
    }
}

fn parse_body(content_type: &str, body: &[u8]) -> ApiResult<Map<String, Value>> {
    if !content_type.starts_with("application/json") {
        let text = format!("The provided content-type '{content_type}' is not supported.");
        return Err(ApiError { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, body: serde_json::json!({ "error": text }) });
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) | Err(_) => Err(ApiError::parameter("message body does not match declared format")),
    }
}

/// `PRIVATE-TOKEN: x` or `Authorization: Bearer x`, and nothing else.
pub(crate) fn authorize(app: &App, headers: &HeaderMap) -> ApiResult<()> {
    let given = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let token = given("private-token").or_else(|| given("authorization").and_then(|value| value.strip_prefix("Bearer ")));
    if token == Some(app.token.as_str()) { Ok(()) } else { Err(ApiError::unauthorized()) }
}
