//! Commands as tests speak them: everything that a sentence does not mention has a sensible value.
//!
//! What it does mention is set by struct update: `Admit { key: key("k"), ..admit(grant("alice", "db")) }`.

use serde_json::{Value, json};
use shared::ids::{BatchId, ClaimToken, OperationId, PartitionKey, Principal, RequestKey, SubjectId, TargetKey};
use shared::request::Request;
use shared::state::{FailCause, Trigger};
use shared::transactions::admit::Admit;
use shared::transactions::begin_fail::BeginFail;
use shared::transactions::block::Block;
use shared::transactions::claim::Claim;
use shared::transactions::deliveries::LeaseToken;
use shared::transactions::fail::Fail;
use shared::transactions::fail_as_ordered::FailAsOrdered;
use shared::transactions::record_merge_request::RecordMergeRequest;
use shared::transactions::record_render::RecordRender;
use shared::transactions::succeed::Succeed;
use shared::transactions::withdraw::{WaitingEnd, Withdraw};

pub const REQUESTER: &str = "requester@example.com";
pub const OPERATOR: &str = "operator@example.com";

pub fn partition_key(text: &str) -> PartitionKey {
    PartitionKey::parse(text).expect("a valid partition")
}

pub fn principal(text: &str) -> Principal {
    Principal::parse(text).expect("a valid principal")
}

pub fn key(text: &str) -> RequestKey {
    RequestKey::parse(text).expect("a valid Idempotency-Key")
}

pub fn subject(text: &str) -> SubjectId {
    SubjectId::parse(text).expect("a valid subject")
}

pub fn target(text: &str) -> TargetKey {
    TargetKey::parse(text).expect("a valid target")
}

/// A token that reads as the text it was made of; at most 16 bytes.
pub fn token(text: &str) -> ClaimToken {
    let mut bytes = [0; 16];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    ClaimToken(bytes)
}

/// A request from its body, which must be right.
pub fn request(body: &Value) -> Request {
    Request::parse(body.to_string().as_bytes()).expect("a right request")
}

pub fn grant(subject: &str, target: &str) -> Request {
    request(&json!({ "subject_id": subject, "target_key": target, "action": "grant" }))
}

pub fn revoke(subject: &str, target: &str) -> Request {
    request(&json!({ "subject_id": subject, "target_key": target, "action": "revoke" }))
}

/// A grant of one file with the given content.
pub fn grant_of_file(subject: &str, target: &str, path: &str, content: &str) -> Request {
    let files = json!([{ "path": path, "content": content }]);
    request(&json!({ "subject_id": subject, "target_key": target, "action": "grant", "change": { "files": files } }))
}

/// Under a key and an operation of its own.
pub fn admit(request: Request) -> Admit {
    let operation = OperationId::new();
    Admit { principal: principal(REQUESTER), key: key(operation.as_str()), operation, request, strict_targets: false }
}

/// A manual round of the partition `default`.
pub fn claim(name: &str) -> Claim {
    claim_of("default", name)
}

pub fn claim_of(partition: &str, name: &str) -> Claim {
    Claim {
        partition: partition_key(partition),
        token: token(name),
        max_requests: None,
        trigger: Trigger::Manual,
        requested_by: principal(OPERATOR),
    }
}

pub fn record_render(batch: BatchId) -> RecordRender {
    RecordRender { batch, by: "runner-1".to_owned(), start_sha: "5".repeat(40), expelled: Vec::new() }
}

pub fn record_merge_request(batch: BatchId, iid: u64) -> RecordMergeRequest {
    RecordMergeRequest {
        batch,
        iid,
        url: format!("http://127.0.0.1/acme/access/-/merge_requests/{iid}"),
        head_sha: "e".repeat(40),
        delivery: ("open_merge_request:of-nobody:1".to_owned(), LeaseToken::random()),
    }
}

pub fn succeed(batch: BatchId, by: &str) -> Succeed {
    Succeed { batch, by: by.to_owned(), merge_sha: Some("a".repeat(40)), code: None }
}

pub fn begin_fail(batch: BatchId, cause: FailCause) -> BeginFail {
    let (code, message) = match cause {
        FailCause::Content => ("pipeline_failed", "the pipeline of our commit failed"),
        FailCause::Infrastructure => ("forge_down", "the forge did not answer"),
        FailCause::Rejected => ("closed_by_person", "somebody closed the merge request"),
    };
    BeginFail { batch, by: "settler-1".to_owned(), cause, code: code.to_owned(), message: message.to_owned() }
}

pub fn fail(batch: BatchId, by: &str) -> Fail {
    Fail { batch, by: by.to_owned() }
}

/// As the version shows it: `abort` or `requeue` on an operator's word.
pub fn fail_as_ordered(batch: BatchId, version: u64, cause: FailCause) -> FailAsOrdered {
    let code = if cause == FailCause::Rejected { "aborted" } else { "requeued" };
    let (by, code, message) = (format!("{code}:operator"), code.to_owned(), format!("{code} by {OPERATOR}"));
    FailAsOrdered { batch, version, by, cause, code, message }
}

pub fn block(batch: BatchId) -> Block {
    Block { batch, code: "infra_exhausted".to_owned(), message: "the forge failed five times".to_owned() }
}

pub fn withdraw(operation: &OperationId) -> Withdraw {
    Withdraw { operation: operation.clone(), actor: principal(REQUESTER), ending: WaitingEnd::Withdrawn }
}

pub fn expire(operation: &OperationId) -> Withdraw {
    Withdraw { operation: operation.clone(), actor: Principal::expiry(), ending: WaitingEnd::Expired }
}
