//! The SQL of the invariants finds what it is there for: each statement is shown the breach that it names.

use std::collections::BTreeSet;

use muster_tests::*;
use shared::audit::INVARIANTS;
use shared::state::FailCause;
use shared::transactions::batch_row::SettleOutcome;

/// A world in which everything has happened: merged, rejected, waiting and in a batch; the target is counted.
async fn eventful() -> World {
    let world = World::new().await.with_target("db", "default", Some(50)).await;
    world.admitted(grant("merged", "db")).await;
    assert_eq!(world.run(&succeed(world.claimed("round-1").await, "settler")).await, SettleOutcome::Settled);
    world.admitted(grant("rejected", "db")).await;
    let batch = world.claimed("round-2").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler")).await, SettleOutcome::Settled);
    world.admitted(grant("member", "db")).await;
    world.claimed("round-3").await;
    world.admitted(grant("waiting", "db")).await;
    world.assert_invariants().await;
    world
}

async fn sees(world: &World, id: &str) -> bool {
    let invariant = INVARIANTS.iter().find(|one| one.id == id).expect("a known invariant");
    !world.rows::<String>(invariant.sql, ()).await.is_empty()
}

/// What only a person with a database client can do, and the invariant that it breaks among others.
const BREACHES: &[(&str, &[&str])] = &[
    (
        "I1",
        // The unique key allows it in no other way than in a copy without the key, which hides the table from this session.
        &[
            "CREATE TEMPORARY TABLE copy SELECT * FROM merge_batch",
            "INSERT INTO copy SELECT * FROM merge_batch WHERE status = 1",
            "ALTER TABLE copy RENAME merge_batch",
        ],
    ),
    (
        "I2.open",
        &[
            "INSERT INTO merge_batch_member SELECT batch_id + 1000, operation_id, 0, NULL, NULL FROM merge_batch_member WHERE outcome IS NULL",
        ],
    ),
    (
        "I2.merged",
        &["INSERT INTO merge_batch_member SELECT batch_id + 1000, operation_id, 0, 1, NULL FROM merge_batch_member WHERE outcome = 1"],
    ),
    ("I2.row", &["DELETE FROM merge_batch_member WHERE outcome IS NULL"]),
    ("I2.partition", &["UPDATE merge_batch SET partition_key = 'other' WHERE status = 1"]),
    (
        "I4.once",
        &["INSERT INTO idempotency_record (principal, request_key, payload_hash, operation_id, expires_at) \
           SELECT principal, 'another', payload_hash, operation_id, expires_at FROM idempotency_record LIMIT 1"],
    ),
    ("I4.whole", &["UPDATE idempotency_record SET principal = 'somebody-else' LIMIT 1"]),
    ("I5.held", &["DELETE FROM binding WHERE subject_id = 'waiting'"]),
    ("I5.state", &["UPDATE binding SET status = 6 WHERE subject_id = 'merged'"]),
    ("I5.granted", &["UPDATE binding SET granted_by_operation_id = REPEAT('0', 36) WHERE subject_id = 'merged'"]),
    ("I5.history", &["DELETE FROM binding_history WHERE subject_id = 'merged' AND to_status = 2"]),
    ("I6", &["UPDATE merge_batch_member SET outcome = NULL WHERE outcome = 1"]),
    ("I8.merged", &["UPDATE merge_batch SET status = 3 WHERE status = 2"]),
    ("I8.landed", &["UPDATE operation SET status = 4 WHERE status = 3"]),
    ("I9.batch", &["DELETE FROM outbox WHERE dedup_key LIKE 'batch.succeeded:%'"]),
    ("I9.request", &["DELETE FROM outbox WHERE dedup_key LIKE 'request.admitted:%' LIMIT 1"]),
    ("I11.waiting", &["DELETE FROM merge_batch_request WHERE batch_id IS NULL"]),
    ("I11.in_batch", &["UPDATE merge_batch SET status = 3, settled_at = CURRENT_TIMESTAMP(6), settled_by = 'x' WHERE status = 1"]),
    (
        "I11.ended",
        &["INSERT INTO merge_batch_request (operation_id, partition_key, rank_at, bytes, batch_id) \
           SELECT operation_id, partition_key, created_at, 1, batch_id FROM operation WHERE status = 4"],
    ),
    ("I11.members", &["UPDATE merge_batch_member SET outcome = 2 WHERE outcome IS NULL"]),
    ("seats", &["UPDATE target SET used = used + 1"]),
    ("content", &["DELETE FROM operation_content LIMIT 100"]),
    ("orphans", &["DELETE FROM target"]),
];

#[tokio::test]
async fn each_invariant_sees_its_breach() {
    let named: BTreeSet<&str> = BREACHES.iter().map(|(id, _)| *id).collect();
    assert_eq!(named, INVARIANTS.iter().map(|one| one.id).collect(), "an invariant that nothing breaks may see nothing");
    for (id, breach) in BREACHES {
        let world = eventful().await;
        for sql in *breach {
            world.sql(sql, ()).await;
        }
        assert!(sees(&world, id).await, "{id} does not see {breach:?}");
    }
}
