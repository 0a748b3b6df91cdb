//! Somebody who asks for accesses over HTTP.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use local::progress::say;
use serde_json::{Value, json};

/// API Gateway itself gives up after 30 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(35);

pub struct Caller {
    http: reqwest::Client,
    api: String,
}

/// One `POST /requests`.
pub struct Ask {
    key: String,
    body: Value,
    what: String,
}

impl Ask {
    pub fn grant(key: &str, subject: &str, target: &str) -> Self {
        Self::new(key, subject, target, "grant")
    }

    pub fn revoke(key: &str, subject: &str, target: &str) -> Self {
        Self::new(key, subject, target, "revoke")
    }

    fn new(key: &str, subject: &str, target: &str, action: &str) -> Self {
        Self {
            key: key.to_owned(),
            body: json!({ "subject_id": subject, "target_key": target, "action": action }),
            what: format!("{action} {target} {} {subject}", if action == "revoke" { "from" } else { "to" }),
        }
    }

    /// Adds one more field to the body.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.body[field] = value;
        self
    }

    /// Says on the screen what is special about it.
    pub fn noting(mut self, note: &str) -> Self {
        self.what = format!("{} ({note})", self.what);
        self
    }
}

impl Caller {
    pub fn of(api: &str) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_LIMIT).build().context("the HTTP client cannot be built")?;
        Ok(Self { http, api: api.to_owned() })
    }

    /// Sends a request that must be answered with `expected`; returns the answer's body.
    pub async fn ask(&self, ask: &Ask, expected: u16) -> Result<Value> {
        let answer = self
            .http
            .post(format!("{}/requests", self.api))
            .header("Idempotency-Key", &ask.key)
            .json(&ask.body)
            .send()
            .await
            .context("POST /requests was not answered")?;
        let (status, body) = read(answer).await?;
        say(format!("POST /requests  {:<68} {status} {}", ask.what, gist(&body)));
        if status != expected {
            bail!("POST /requests answered {status} instead of {expected}: {body}");
        }
        Ok(body)
    }

    /// Sends a request that must be admitted, and returns its operation.
    pub async fn admit(&self, ask: &Ask) -> Result<String> {
        let body = self.ask(ask, 201).await?;
        body["operation_id"].as_str().map(str::to_owned).with_context(|| format!("no operation_id in {body}"))
    }

    /// `GET path`, which must be answered with 200.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.http.get(format!("{}{path}", self.api)).send().await.with_context(|| format!("GET {path} was not answered"))?;
        let (status, body) = read(answer).await?;
        if status != 200 {
            bail!("GET {path} answered {status}: {body}");
        }
        Ok(body)
    }

    /// `WAITING`, `IN_BATCH`, `MERGED` and so on.
    pub async fn status(&self, operation: &str) -> Result<String> {
        let body = self.get(&format!("/requests/{operation}")).await?;
        body["status"].as_str().map(str::to_owned).with_context(|| format!("no status in {body}"))
    }
}

async fn read(answer: reqwest::Response) -> Result<(u16, Value)> {
    let status = answer.status().as_u16();
    let text = answer.text().await.context("the answer ended early")?;
    let body = serde_json::from_str(&text).with_context(|| format!("the answer {status} is no JSON: {text}"))?;
    Ok((status, body))
}

/// The few words of an answer that tell what happened.
fn gist(body: &Value) -> String {
    let word = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    match body["operation_id"].as_str() {
        Some(operation) => {
            let again = if body["duplicate"] == json!(true) { ", answered before" } else { "" };
            format!("{} {operation}{again}", word("status"))
        }
        None => format!("{}\n  {}", word("type"), word("detail")),
    }
}
