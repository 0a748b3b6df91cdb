//! The sweep's own passes: what cannot be dealt with keeps nothing behind it waiting.

use muster_tests::journey::{Journey, stop_at};
use muster_tests::{begin_fail, fail, grant, request, succeed, withdraw};
use serde_json::json;
use shared::state::FailCause;
use shared::transactions::withdraw::WithdrawOutcome;

/// More than the sweep reads at once.
const MANY: usize = 201;

#[tokio::test]
async fn accesses_that_cannot_be_revoked_keep_no_other_from_being_revoked() {
    let journey = Journey::new().await;
    journey.world.sql("UPDATE merge_partition SET max_requests = 500, content_attempts = 12", ()).await;
    let expires_at: String =
        journey.world.scalar("SELECT DATE_FORMAT(CURRENT_TIMESTAMP + INTERVAL 3600 SECOND, '%Y-%m-%dT%H:%i:%sZ')", ()).await;
    for number in 0..MANY {
        let subject = format!("s{number:03}");
        let body = json!({ "subject_id": subject, "target_key": "db", "action": "grant", "expires_at": expires_at });
        journey.world.admitted(request(&body)).await;
    }
    let batch = journey.world.claimed("round-1").await;
    let _ = journey.world.run(&succeed(batch, "settler")).await;
    // Somebody else's command has their keys; theirs are the first of the list.
    journey
        .world
        .sql(
            "INSERT INTO idempotency_record (principal, request_key, payload_hash, operation_id, expires_at) \
             SELECT 'muster:expiry', CONCAT('expire:', granted_by_operation_id, ':', version), REPEAT('x', 32), operation_id, \
                    CURRENT_TIMESTAMP(6) + INTERVAL 7 DAY FROM binding WHERE subject_id <> 's200'",
            (),
        )
        .await;
    let later = journey.runner_in(7200).await;
    let report = sweep::handle(&later, json!({}), stop_at()).await.expect("a sweep always answers");
    let report = serde_json::to_value(report).expect("a report is JSON");
    assert_eq!(report["expiry_revokes"], 1, "{report}");
    assert_eq!(journey.binding_of("s200", "db").await, "REVOKING");
}

#[tokio::test]
async fn failed_requests_that_cannot_be_closed_keep_no_other_from_being_closed() {
    let journey = Journey::new().await;
    let mut operations = Vec::new();
    for subject in ["alice", "bob"] {
        operations.push(journey.world.admitted(grant(subject, "db")).await);
        let batch = journey.world.claimed(subject).await;
        let _ = journey.world.run(&begin_fail(batch, FailCause::Content)).await;
        let _ = journey.world.run(&fail(batch, "settler")).await;
    }
    for operation in &operations {
        let noted = journey.world.run(&withdraw(operation)).await;
        assert!(matches!(noted, WithdrawOutcome::Noted { .. }), "{noted:?}");
    }
    journey.world.sql("UPDATE operation SET batch_id = NULL WHERE operation_id = ?", (&operations[0],)).await;
    let report = journey.sweep().await;
    assert_eq!(report["closed_requests"], 1, "{report}");
    assert!(report["problems"].to_string().contains("was never in a batch"), "{report}");
    assert_eq!(journey.binding_of("bob", "db").await, "CLOSED");
}
