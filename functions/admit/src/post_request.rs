//! `POST /requests`: the approval of a change, put into the waiting set once.

use adapters::problem::Problem;
use lambda_http::http::header::HeaderName;
use lambda_http::http::{HeaderMap, Response, StatusCode};
use lambda_http::{Body, Request};
use serde::Serialize;
use shared::ids::{OperationId, RequestKey};
use shared::request::{self, BODY_BYTES_MAX};
use shared::state::{Action, BindingStatus, OperationStatus};
use shared::transactions::admit::{Admission, Admit, AdmitOutcome};

use crate::AdmitState;
use crate::answer;
use crate::caller::Caller;
use crate::problems;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The answer's body.
#[derive(Serialize)]
struct Admitted<'a> {
    operation_id: &'a OperationId,
    status: OperationStatus,
    duplicate: bool,
    created_at: &'a str,
}

pub(crate) async fn admit(state: &AdmitState, caller: &Caller, request: &Request) -> Result<Response<Body>, Problem> {
    let body = request.body().as_ref();
    if body.len() > BODY_BYTES_MAX {
        return Err(problems::too_large(body.len()));
    }
    let (key, request) = match (key_of(request.headers()), request::Request::parse(body)) {
        (Ok(key), Ok(request)) => (key, request),
        (key, request) => return Err(problems::invalid(key.err().into_iter().chain(request.err().into_iter().flatten()).collect())),
    };
    let action = request.action;
    let unit =
        Admit { principal: caller.principal.clone(), key, operation: OperationId::new(), request, strict_targets: state.strict_targets };
    let outcome = state.store.run(&unit).await.map_err(|error| problems::store(&error))?;
    answer_for(outcome, action)
}

fn key_of(headers: &HeaderMap) -> Result<RequestKey, String> {
    const WHAT: &str = "choose a new one for each request, and send the same one when you repeat a request";
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (value, further) = (values.next(), values.next());
    if further.is_some() {
        return Err("the header Idempotency-Key is there more than once".into());
    }
    let value = value.ok_or_else(|| format!("the header Idempotency-Key is missing; {WHAT}"))?;
    let text = value.to_str().map_err(|_| "the header Idempotency-Key holds characters outside printable ASCII".to_owned())?;
    RequestKey::parse(without_quotes(text.trim())).map_err(|why| why.to_string())
}

/// The header's draft standard makes the key a quoted string; most clients send it bare.
fn without_quotes(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn answer_for(outcome: AdmitOutcome, action: Action) -> Result<Response<Body>, Problem> {
    match outcome {
        AdmitOutcome::Admitted(admission) => admitted(StatusCode::CREATED, &admission),
        AdmitOutcome::Replayed(admission) => admitted(StatusCode::OK, &admission),
        AdmitOutcome::KeyReused { operation } => Err(problems::KEY_REUSED
            .because("this Idempotency-Key was sent before with another request; nothing was done, send this one with a new key")
            .with("operation_id", operation.as_str())),
        AdmitOutcome::WinnerGone => Err(problems::try_again("a request with the same Idempotency-Key came in between and was not admitted")),
        AdmitOutcome::Preempted => Err(problems::try_again("other requests for the same relationship or target came in between")),
        AdmitOutcome::BindingHeld { status, operation } => Err(held(action, status, operation.as_ref())),
        AdmitOutcome::SeatsExhausted { capacity, used } => Err(problems::SEATS_EXHAUSTED
            .because(format!(
                "the target has {capacity} seats and {used} are taken; nothing was done, wait until one is revoked or ask an operator for more"
            ))
            .with("capacity", capacity)
            .with("used", used)),
        AdmitOutcome::TargetClosed => Err(problems::TARGET_CLOSED
            .because("an operator has closed the target for new grants; nothing was done, what it holds can still be revoked")),
        AdmitOutcome::PartitionClosed { partition } => Err(problems::PARTITION_CLOSED
            .because(format!("an operator has closed the partition {partition} of this target; nothing was done, ask an operator"))
            .with("partition", partition.as_str())),
        AdmitOutcome::UnknownTarget => Err(problems::UNKNOWN_TARGET
            .because("no operator has set up this target, and this installation takes no others; nothing was done, check target_key")),
        AdmitOutcome::PartitionNotConfigured => Err(problems::partition_not_configured()),
        AdmitOutcome::ExpiresInThePast => Err(problems::invalid(vec!["expires_at has passed already".into()])),
        AdmitOutcome::PathRefused { problems } => Err(problems::invalid(problems)),
    }
}

fn admitted(status: StatusCode, admission: &Admission) -> Result<Response<Body>, Problem> {
    let body = Admitted {
        operation_id: &admission.operation,
        status: admission.status,
        duplicate: status == StatusCode::OK,
        created_at: &admission.created_at,
    };
    answer::json_at(status, &format!("/requests/{}", admission.operation), &body)
}

fn held(action: Action, status: Option<BindingStatus>, operation: Option<&OperationId>) -> Problem {
    let meaning = match (action, status) {
        (_, None) => "this subject was never granted this target, so there is nothing to revoke".to_owned(),
        (Action::Revoke, Some(status)) if status.is_reappliable() => format!("the relationship is {status}, so there is nothing to revoke"),
        (_, Some(BindingStatus::Active)) => {
            "the relationship is ACTIVE already; to change or prolong it, revoke it and grant it again".to_owned()
        }
        (_, Some(BindingStatus::Failed)) => "its last request is FAILED; that one must be recovered or closed first".to_owned(),
        (_, Some(status)) => format!("the relationship is {status}: a request for it is under way; wait for it, or withdraw it"),
    };
    let state = problems::binding_state(status.map(BindingStatus::name), operation.map(OperationId::as_str));
    problems::BINDING_HELD.because(format!("{meaning}. Nothing was done")).with("binding", state)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use lambda_http::http::HeaderValue;

    use super::*;

    fn key(values: &[&str]) -> Result<RequestKey, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        key_of(&headers)
    }

    #[test]
    fn a_key_may_come_in_one_pair_of_quotes() {
        assert_eq!(key(&["k-1"]).unwrap().as_str(), "k-1");
        assert_eq!(key(&["\"k-1\""]).unwrap().as_str(), "k-1");
        assert_eq!(key(&["\"\"k-1\"\""]).unwrap().as_str(), "\"k-1\"");
        assert_eq!(key(&["\"k-1"]).unwrap().as_str(), "\"k-1");
        for bad in [&[][..], &[""], &["\"\""], &["a", "b"], &["é"], &["\" k\""], &["\""; 2], &[&"k".repeat(256)]] {
            assert!(key(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_refusal_tells_the_state_it_met() {
        let operation = OperationId::new();
        let held = |action, status| answer_for(AdmitOutcome::BindingHeld { status, operation: status.map(|_| operation.clone()) }, action);
        let problem = held(Action::Grant, Some(BindingStatus::Applying)).unwrap_err();
        assert_eq!((problem.kind.status, problem.kind.name), (409, "binding-held"));
        assert_eq!(problem.to_json()["binding"], serde_json::json!({"status": "APPLYING", "operation_id": operation}));
        let problem = held(Action::Revoke, None).unwrap_err();
        assert_eq!((problem.kind.name, &problem.to_json()["binding"]), ("binding-held", &serde_json::Value::Null));
        let problem = answer_for(AdmitOutcome::SeatsExhausted { capacity: 3, used: 4 }, Action::Grant).unwrap_err();
        assert_eq!((&problem.to_json()["capacity"], &problem.to_json()["used"]), (&3.into(), &4.into()));
        for (outcome, status, name, retry_after_s) in [
            (AdmitOutcome::KeyReused { operation: operation.clone() }, 422, "idempotency-key-reused", None),
            (AdmitOutcome::WinnerGone, 503, "try-again", Some(1)),
            (AdmitOutcome::Preempted, 503, "try-again", Some(1)),
            (AdmitOutcome::TargetClosed, 409, "target-closed", None),
            (AdmitOutcome::UnknownTarget, 422, "unknown-target", None),
            (AdmitOutcome::PartitionNotConfigured, 503, "partition-not-configured", Some(60)),
            (AdmitOutcome::ExpiresInThePast, 400, "invalid-request", None),
            (AdmitOutcome::PathRefused { problems: vec!["p".into()] }, 400, "invalid-request", None),
        ] {
            let problem = answer_for(outcome, Action::Grant).unwrap_err();
            assert_eq!((problem.kind.status, problem.kind.name, problem.retry_after_s), (status, name, retry_after_s));
        }
    }
}
