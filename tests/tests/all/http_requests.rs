//! `POST /requests` and what may be done with a request afterwards.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_tests::*;
use serde_json::{Value, json};

use crate::http::{ALICE, Api, BOB, OLGA, event, grant_body, with_header};

#[tokio::test]
async fn a_request_is_created_once_and_found_at_its_location() {
    let world = World::new().await;
    let api = Api::of(&world);
    let body = json!({
        "subject_id": "carol", "target_key": "db", "action": "grant", "priority": 2, "approval_ref": "CHG-7 é",
        "expires_at": "2099-12-31T23:00:00+01:00", "attributes": { "role": "reader" },
    });
    let first = api.post(ALICE, "k", &body).await;
    let (id, created_at) = (first.text("operation_id"), first.text("created_at"));
    assert_eq!((first.status, first.header("location")), (201, Some(format!("/requests/{id}").as_str())));
    assert_eq!(first.body, json!({ "operation_id": id, "status": "WAITING", "duplicate": false, "created_at": created_at }));
    let again = api.post(ALICE, "\"k\"", &body).await;
    assert_eq!((again.status, again.header("location")), (200, first.header("location")));
    assert_eq!(again.body, json!({ "operation_id": id, "status": "WAITING", "duplicate": true, "created_at": created_at }));
    let shown = api.get(ALICE, &format!("/requests/{id}")).await;
    assert_eq!(shown.status, 200);
    assert_eq!(
        shown.body,
        json!({
            "operation_id": id, "status": "WAITING", "action": "grant", "subject_id": "carol", "target_key": "db", "partition": "default",
            "requested_by": ALICE, "approval_ref": "CHG-7 é", "priority": 2, "expires_at": "2099-12-31T22:00:00.000000Z",
            "batch_id": null, "code": null, "message": null, "withdraw_requested": false, "withdraw_requested_at": null,
            "created_at": created_at, "updated_at": created_at, "settled_at": null, "merge_request": null,
            "binding": { "status": "APPLYING", "operation_id": id, "expires_at": "2099-12-31T22:00:00.000000Z" },
        })
    );
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_replay_tells_the_state_of_now() {
    let world = World::new().await;
    let api = Api::of(&world);
    let id = api.grant(ALICE, "carol").await;
    world.claimed("token").await;
    let again = api.post(ALICE, "carol", &grant_body("carol")).await;
    assert_eq!((again.status, again.text("operation_id"), again.text("status")), (200, id, "IN_BATCH".to_owned()));
}

#[tokio::test]
async fn a_body_is_bytes_however_the_gateway_wraps_it() {
    let world = World::new().await;
    let api = Api::of(&world);
    let plain = grant_body("carol").to_string();
    let mut wrapped = with_header(event(ALICE, "POST", "/requests", "", Some(&STANDARD.encode(&plain))), "idempotency-key", "k");
    wrapped["isBase64Encoded"] = json!(true);
    assert_eq!(api.send(&wrapped).await.status, 201);
    assert_eq!(api.post(ALICE, "k", &grant_body("carol")).await.status, 200);
}

#[tokio::test]
async fn whatever_is_wrong_with_a_request_is_told_at_once_and_nothing_is_written() {
    let world = World::new().await;
    let api = Api::of(&world);
    let before = world.snapshot().await;
    let wrong = json!({ "subject_id": "..", "target_key": "a b", "action": "grant", "priority": 10, "expires_at": "soon" });
    let answer = api.send(&event(ALICE, "POST", "/requests", "", Some(&wrong.to_string()))).await;
    assert_eq!(answer.problem(), (400, "invalid-request".to_owned()));
    assert_eq!(answer.body["errors"].as_array().map(Vec::len), Some(5), "the header and four members: {answer:?}");
    for body in ["", "null", "[]", "{", "\u{0}", r#"{"subject_id":"a","target_key":"t","action":"grant","extra":1}"#] {
        let event = with_header(event(ALICE, "POST", "/requests", "", Some(body)), "idempotency-key", "k");
        assert_eq!(api.send(&event).await.problem(), (400, "invalid-request".to_owned()), "{body:?}");
    }
    let mut bytes = with_header(event(ALICE, "POST", "/requests", "", Some("//79")), "idempotency-key", "k");
    bytes["isBase64Encoded"] = json!(true);
    assert_eq!(api.send(&bytes).await.status, 400, "bytes that are no UTF-8");
    for key in ["", " ", "\"\"", "a\tb", &"k".repeat(256)] {
        assert_eq!(api.post(ALICE, key, &grant_body("carol")).await.status, 400, "{key:?}");
    }
    let past = json!({ "subject_id": "carol", "target_key": "db", "action": "grant", "expires_at": "2001-01-01T00:00:00Z" });
    assert_eq!(api.post(ALICE, "k", &past).await.problem(), (400, "invalid-request".to_owned()));
    let outside = json!({ "subject_id": "c", "target_key": "db", "action": "grant", "change": { "files": [{ "path": ".gitlab-ci.yml", "content": "" }] } });
    assert_eq!(api.post(ALICE, "k", &outside).await.problem(), (400, "invalid-request".to_owned()));
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn a_body_may_have_256_kib_and_not_a_byte_more() {
    let world = World::new().await;
    let api = Api::of(&world);
    let of_size = |bytes: usize| {
        let body = |filling: usize| {
            let files = json!([{ "path": "access/x", "content": "x".repeat(filling) }]);
            json!({ "subject_id": "carol", "target_key": "db", "action": "grant", "change": { "files": files } })
        };
        body(bytes - body(0).to_string().len())
    };
    let answer = api.post(ALICE, "k", &of_size(256 * 1024 + 1)).await;
    assert_eq!((answer.problem(), &answer.body["bytes_max"]), ((413, "too-large".to_owned()), &json!(262_144)));
    assert_eq!(api.post(ALICE, "k", &of_size(256 * 1024)).await.status, 201);
}

#[tokio::test]
async fn a_refusal_names_the_state_it_met() {
    let world = World::new().await.with_target("full", "default", Some(0)).await;
    let api = Api::of(&world);
    let id = api.grant(ALICE, "carol").await;
    let held = api.post(BOB, "k", &grant_body("carol")).await;
    assert_eq!(held.problem(), (409, "binding-held".to_owned()));
    assert_eq!(held.body["binding"], json!({ "status": "APPLYING", "operation_id": id }));
    let revoke = |subject: &str| json!({ "subject_id": subject, "target_key": "db", "action": "revoke" });
    let none = api.post(BOB, "k", &revoke("nobody")).await;
    assert_eq!((none.problem(), &none.body["binding"]), ((409, "binding-held".to_owned()), &Value::Null));
    let reused = api.post(ALICE, "carol", &grant_body("dave")).await;
    assert_eq!((reused.problem(), reused.text("operation_id")), ((422, "idempotency-key-reused".to_owned()), id.clone()));
    assert_eq!(api.post(BOB, "carol", &grant_body("dave")).await.status, 201, "keys belong to their principals");
    let full = api.post(BOB, "k", &json!({ "subject_id": "carol", "target_key": "full", "action": "grant" })).await;
    assert_eq!((full.problem(), &full.body["capacity"], &full.body["used"]), ((409, "seats-exhausted".to_owned()), &json!(0), &json!(0)));
    world.sql("UPDATE target SET closed_at = CURRENT_TIMESTAMP(6), version = version + 1 WHERE target_key = 'db'", ()).await;
    assert_eq!(api.post(BOB, "k", &grant_body("erin")).await.problem(), (409, "target-closed".to_owned()));
    let unknown = json!({ "subject_id": "carol", "target_key": "new", "action": "grant" });
    assert_eq!(Api::of(&world).strict().post(BOB, "k", &unknown).await.problem(), (422, "unknown-target".to_owned()));
    world.sql("UPDATE merge_partition SET closed_at = CURRENT_TIMESTAMP(6), version = version + 1", ()).await;
    let closed = api.post(BOB, "k", &unknown).await;
    assert_eq!((closed.problem(), closed.text("partition")), ((409, "partition-closed".to_owned()), "default".to_owned()));
    world.assert_invariants().await;
}

#[tokio::test]
async fn what_may_succeed_later_says_when_to_come_back() {
    let world = World::empty().await;
    let answer = Api::of(&world).post(ALICE, "k", &grant_body("carol")).await;
    assert_eq!((answer.problem(), answer.header("retry-after")), ((503, "partition-not-configured".to_owned()), Some("60")));
    let nowhere = world.store_with(|options| {
        options.url = "mysql://root:hunter2@127.0.0.1:9/muster".into();
        options.connect_limit = Duration::from_millis(500);
    });
    let api = Api::on(nowhere);
    for answer in [
        api.post(ALICE, "k", &grant_body("carol")).await,
        api.get(ALICE, "/requests").await,
        api.get(ALICE, "/batches/1").await,
        api.get(ALICE, "/status").await,
    ] {
        assert_eq!((answer.problem(), answer.header("retry-after")), ((503, "unavailable".to_owned()), Some("5")));
        assert!(!answer.body.to_string().contains("hunter2"), "{answer:?}");
    }
}

#[tokio::test]
async fn nobody_is_let_in_without_a_name() {
    let world = World::new().await;
    let api = Api::of(&world);
    let mut anonymous = event(ALICE, "GET", "/requests", "", None);
    anonymous["requestContext"].as_object_mut().expect("an object").remove("authorizer");
    assert_eq!(api.send(&anonymous).await.problem(), (401, "no-principal".to_owned()));
    assert_eq!(api.get("muster:expiry", "/requests").await.status, 401, "no caller passes for Muster itself");
}

#[tokio::test]
async fn a_path_or_a_method_that_is_not_there_says_so() {
    let world = World::new().await;
    let api = Api::of(&world);
    assert_eq!(api.get(ALICE, "/nothing").await.problem(), (404, "not-found".to_owned()));
    let answer = api.send(&event(ALICE, "PATCH", "/requests", "", None)).await;
    assert_eq!((answer.problem(), answer.header("allow")), ((405, "method-not-allowed".to_owned()), Some("GET, POST")));
}

#[tokio::test]
async fn only_its_requester_and_operators_see_or_withdraw_a_request() {
    let world = World::new().await;
    let api = Api::of(&world);
    let path = format!("/requests/{}", api.grant(ALICE, "carol").await);
    assert_eq!(api.get(BOB, &path).await.problem(), (404, "not-found".to_owned()));
    assert_eq!(api.delete(BOB, &path).await.problem(), (404, "not-found".to_owned()));
    assert_eq!(api.get(OLGA, &path).await.status, 200);
    for missing in ["/requests/019a0000-0000-7000-8000-000000000001", "/requests/x", "/requests/a%20b", "/requests/%2e%2e"] {
        assert_eq!(api.get(OLGA, missing).await.problem(), (404, "not-found".to_owned()), "{missing}");
    }
    let withdrawn = api.delete(OLGA, &path).await;
    assert_eq!(
        (withdrawn.status, withdrawn.text("status"), &withdrawn.body["binding"]["status"]),
        (200, "WITHDRAWN".to_owned(), &json!("CLOSED"))
    );
    let ended = api.delete(ALICE, &path).await;
    assert_eq!((ended.problem(), &ended.body["request"]["status"]), ((409, "request-ended".to_owned()), &json!("WITHDRAWN")));
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_request_in_a_batch_is_withdrawn_when_its_batch_ends() {
    let world = World::new().await;
    let api = Api::of(&world);
    let path = format!("/requests/{}", api.grant(ALICE, "carol").await);
    let batch = world.claimed("token").await;
    for _repeated in 0..2 {
        let noted = api.delete(ALICE, &path).await;
        assert_eq!((noted.status, noted.text("status"), noted.text("batch_id")), (202, "IN_BATCH".to_owned(), batch.to_string()));
        assert_eq!(noted.body["withdraw_requested"], true);
    }
    world.assert_invariants().await;
}
