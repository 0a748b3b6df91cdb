//! Every problem that the API answers: `docs/openapi.yaml` lists them for clients.

use std::fmt::Display;

use adapters::problem::{Problem, ProblemType};
use lambda_http::http::Method;
use serde_json::json;
use shared::StoreError;
use shared::request::BODY_BYTES_MAX;

const fn kind(status: u16, name: &'static str, title: &'static str) -> ProblemType {
    ProblemType { name, title, status }
}

pub(crate) const INVALID_REQUEST: ProblemType = kind(400, "invalid-request", "The request is not valid");
const NO_PRINCIPAL: ProblemType = kind(401, "no-principal", "The caller is not known");
const NOT_FOUND: ProblemType = kind(404, "not-found", "There is no such thing");
const METHOD_NOT_ALLOWED: ProblemType = kind(405, "method-not-allowed", "The path does not take this method");
pub(crate) const BINDING_HELD: ProblemType = kind(409, "binding-held", "The state of the relationship does not allow this");
pub(crate) const SEATS_EXHAUSTED: ProblemType = kind(409, "seats-exhausted", "The target has no seat left");
pub(crate) const TARGET_CLOSED: ProblemType = kind(409, "target-closed", "The target takes no new grants");
pub(crate) const PARTITION_CLOSED: ProblemType = kind(409, "partition-closed", "The partition takes no new requests");
pub(crate) const REQUEST_ENDED: ProblemType = kind(409, "request-ended", "The request has ended already");
pub(crate) const OPERATORS_ONLY: ProblemType = kind(409, "operators-only", "Only an operator can close this request");
const TOO_LARGE: ProblemType = kind(413, "too-large", "The body is too large");
pub(crate) const KEY_REUSED: ProblemType = kind(422, "idempotency-key-reused", "The Idempotency-Key belongs to another request");
pub(crate) const UNKNOWN_TARGET: ProblemType = kind(422, "unknown-target", "The target is not set up");
const INTERNAL_ERROR: ProblemType = kind(500, "internal-error", "Muster cannot go on by itself");
pub(crate) const PARTITION_NOT_CONFIGURED: ProblemType = kind(503, "partition-not-configured", "The partition is not set up yet");
const TRY_AGAIN: ProblemType = kind(503, "try-again", "Another request came in between");
const UNAVAILABLE: ProblemType = kind(503, "unavailable", "The database cannot be reached");

/// Seconds a client waits before it tries again.
const RETRY_RACE_S: u32 = 1;
const RETRY_OUTAGE_S: u32 = 5;
const RETRY_CONFIGURATION_S: u32 = 60;

/// The request is wrong in itself: one sentence for each thing that is.
pub(crate) fn invalid(errors: Vec<String>) -> Problem {
    let detail = format!("nothing was done, because {}; put it right and send it again", errors.join("; "));
    INVALID_REQUEST.because(detail).with("errors", errors)
}

pub(crate) fn no_principal(why: &str) -> Problem {
    NO_PRINCIPAL.because(format!("nothing was done, because {why}; send a token or a signature that names who you are"))
}

pub(crate) fn not_found(what: &str) -> Problem {
    NOT_FOUND.because(format!("there is no {what}, or it is not yours to see; check the id, or ask an operator"))
}

pub(crate) fn no_such_path(path: &str) -> Problem {
    NOT_FOUND.because(format!("the API has no path {path:?}; docs/openapi.yaml lists its paths"))
}

pub(crate) fn method_not_allowed(method: &Method, path: &str, allow: &'static str) -> Problem {
    METHOD_NOT_ALLOWED.because(format!("{path} does not take {method}; it takes {allow}")).with("allow", allow)
}

pub(crate) fn too_large(bytes: usize) -> Problem {
    TOO_LARGE
        .because(format!("nothing was done, because the body has {bytes} bytes and may have {BODY_BYTES_MAX}; make several requests of it"))
        .with("bytes", bytes)
        .with("bytes_max", BODY_BYTES_MAX)
}

/// A race was lost: the same request will most likely succeed at once.
pub(crate) fn try_again(what: &str) -> Problem {
    TRY_AGAIN.because(format!("{what}; nothing was done, send the same request again")).retry_after(RETRY_RACE_S)
}

pub(crate) fn partition_not_configured() -> Problem {
    PARTITION_NOT_CONFIGURED
        .because(
            "nothing was done, because the partition of this target is not set up; an operator sets it up by the action set_partition of ops, \
             then send the same request again",
        )
        .retry_after(RETRY_CONFIGURATION_S)
}

/// What the database could not do.
pub(crate) fn store(error: &StoreError) -> Problem {
    match error {
        error if !error.is_fault() => internal(error),
        StoreError::CommitUnknown(_) => UNAVAILABLE
            .because(
                "the connection broke while the answer was under way, so it is not known whether this was done; send the same request again, \
                 with the same Idempotency-Key where it has one: it is done once",
            )
            .retry_after(RETRY_OUTAGE_S),
        error => UNAVAILABLE.because(error.to_string()).retry_after(RETRY_OUTAGE_S),
    }
}

/// The cause goes to the log and not to the caller.
pub(crate) fn internal(error: &dyn Display) -> Problem {
    tracing::error!(event = "internal_error", %error);
    INTERNAL_ERROR.because(
        "what is stored does not fit together, or the code and the schema do not; nothing was done, and an operator finds the reason in the log",
    )
}

/// The part of a state that two problems share.
pub(crate) fn binding_state(status: Option<&str>, operation: Option<&str>) -> serde_json::Value {
    status.map_or(serde_json::Value::Null, |status| json!({ "status": status, "operation_id": operation }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    const HERE: &str = include_str!("problems.rs");
    const DOCUMENTED: &str = include_str!("../../../docs/openapi.yaml");

    /// What follows each `before` in `text`, up to one of `ends`.
    fn each<'t>(text: &'t str, before: &str, ends: &[char]) -> BTreeSet<&'t str> {
        text.split(before).skip(1).filter_map(|rest| rest.split(ends).next()).collect()
    }

    #[test]
    fn every_problem_is_documented_and_no_other() {
        let constants = HERE.lines().filter(|line| !line.starts_with(' ') && line.contains(": ProblemType = kind("));
        let answered: BTreeSet<&str> = constants.filter_map(|line| line.split('"').nth(1)).collect();
        let mut documented = each(DOCUMENTED, "const: /problems/", &['\n', ' ', '}']);
        assert!(documented.remove("not-authentic"), "the webhook's own");
        // A method that is not there is API Gateway's to answer; the code does so where nothing stands before it.
        documented.insert("method-not-allowed");
        assert_eq!(answered, documented);
        assert!(answered.len() > 10, "{answered:?}");
    }
}
