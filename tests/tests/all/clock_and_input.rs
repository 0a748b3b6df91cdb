//! Time, identity and input, as the database takes them: one clock whatever the server's time zone, microseconds that are
//! never rounded up, ids that are equal only if they are the same, and limits that cannot be nothing.

use muster_tests::codes::is_check_violation;
use muster_tests::rows::insert;
use muster_tests::*;
use shared::Store;
use shared::ids::{OperationId, PartitionKey, SubjectId, TargetKey};
use shared::transactions::admit::AdmitOutcome;
use shared::transactions::claim::{Claim, ClaimOutcome};
use shared::transactions::deliveries::{LeaseDeliveries, LeaseToken, Scope};

const TOO_LONG: u16 = 1406;
const NOT_NULL: u16 = 1048;
const OUT_OF_RANGE: u16 = 1264;

/// A store that connects while the server's own time zone is this one.
async fn store_while_the_server_is_at(world: &World, zone: &str) -> Store {
    world.sql(&format!("SET GLOBAL time_zone = '{zone}'"), ()).await;
    let store = world.store_with(|_| {});
    // Connected, so that it has taken over what it does not set itself.
    let connected = store.first::<(String,)>("/* test.zone */ SELECT @@GLOBAL.time_zone", ()).await.expect("a look");
    assert_eq!(connected, Some((zone.to_owned(),)));
    world.sql("SET GLOBAL time_zone = 'SYSTEM'", ()).await;
    store
}

/// East, west, and the two changes of a summer time: each hour that a server's zone may be off.
#[tokio::test]
async fn a_request_is_claimed_at_once_whatever_zones_the_server_goes_through() {
    for (admitted_at, claimed_at) in [("+09:00", "-08:00"), ("-08:00", "+09:00"), ("+02:00", "+01:00"), ("+01:00", "+02:00")] {
        let world = World::new().await;
        let admitting = store_while_the_server_is_at(&world, admitted_at).await;
        let claiming = store_while_the_server_is_at(&world, claimed_at).await;
        let _ = admitting.run(&admit(grant("alice", "db"))).await.expect("an outcome");
        let off = "SELECT ABS(TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP(6))) FROM merge_batch_request";
        assert!(world.scalar::<i64>(off, ()).await < 600, "the row is not of now");
        let outcome = claiming.run(&claim("round-1")).await.expect("an outcome");
        assert!(matches!(outcome, ClaimOutcome::Claimed { .. }), "{admitted_at} then {claimed_at}: {outcome:?}");
        let overdue = shared::read::round::active_batches(&claiming).await.expect("a look");
        let round = shared::read::round::round(&admitting, overdue[0]).await.expect("a look").expect("the batch");
        assert_eq!(round.ours().overdue, None, "{admitted_at} then {claimed_at}");
    }
}

/// What the pinned time zone is for: a session without it writes rows of another day.
#[tokio::test]
async fn a_session_that_is_not_in_utc_writes_rows_that_nobody_claims_for_hours() {
    let world = World::new().await;
    let astray = world.store_with(|options| options.session = vec!["time_zone = '+09:00'".to_owned()]);
    let _ = astray.run(&admit(grant("alice", "db"))).await.expect("an outcome");
    assert_eq!(world.run(&claim("round-1")).await, ClaimOutcome::NothingToClaim);
    let later = world.store_in(9 * 3600 + 1).await;
    assert!(matches!(later.run(&claim("round-2")).await.expect("an outcome"), ClaimOutcome::Claimed { .. }));
}

/// A store whose clock stands still.
fn at(world: &World, timestamp: &str) -> Store {
    let session = vec![format!("timestamp = {timestamp}")];
    world.store_with(|options| options.session = session)
}

#[tokio::test]
async fn a_request_is_claimable_a_microsecond_after_its_admission_and_not_a_second() {
    let world = World::new().await;
    let _ = at(&world, "1900000000.500000").run(&admit(grant("alice", "db"))).await.expect("an outcome");
    let same_instant = at(&world, "1900000000.500000").run(&claim("round-1")).await.expect("an outcome");
    assert_eq!(same_instant, ClaimOutcome::NothingToClaim);
    let next = at(&world, "1900000000.500001").run(&claim("round-2")).await.expect("an outcome");
    assert!(matches!(next, ClaimOutcome::Claimed { .. }), "{next:?}");
}

#[tokio::test]
async fn no_time_is_rounded_up_into_the_future() {
    let world = World::new().await;
    let store = at(&world, "1900000000.999999");
    let _ = store.run(&admit(grant("alice", "db"))).await.expect("an outcome");
    assert!(matches!(at(&world, "1900000001.999999").run(&claim("round-1")).await.expect("an outcome"), ClaimOutcome::Claimed { .. }));
    let times = "SELECT created_at FROM operation UNION ALL SELECT created_at FROM merge_batch_request UNION ALL SELECT created_at FROM binding \
                 UNION ALL SELECT rank_at FROM merge_batch_request";
    let all: Vec<String> = world.rows(&format!("SELECT DATE_FORMAT(created_at, '%H:%i:%s.%f') FROM ({times}) AS t"), ()).await;
    assert_eq!(all, vec!["17:46:40.999999"; 4]);
    let claimed = "SELECT DATE_FORMAT(created_at, '%H:%i:%s.%f') FROM merge_batch";
    assert_eq!(world.scalar::<String>(claimed, ()).await, "17:46:41.999999");
}

/// The one time that a client gives is cut to microseconds before it is bound: rounded, it would be of the next year.
#[tokio::test]
async fn an_expiry_with_more_digits_than_the_column_stays_in_its_year() {
    let world = World::new().await;
    let files = serde_json::json!([{ "path": "access/alice.json", "content": "{}", "base": "absent" }]);
    let body = serde_json::json!({
        "subject_id": "alice", "target_key": "db", "action": "grant", "expires_at": "2099-12-31T23:59:59.9999999Z", "change": { "files": files },
    });
    world.admitted(request(&body)).await;
    for table in ["operation", "binding", "merge_batch_request"] {
        let text: String = world.scalar(&format!("SELECT DATE_FORMAT(expires_at, '%Y-%m-%d %H:%i:%s.%f') FROM {table}"), ()).await;
        assert_eq!(text, "2099-12-31 23:59:59.999999", "{table}");
    }
}

#[tokio::test]
async fn ids_that_a_folding_collation_would_call_equal_are_different_requests() {
    let world = World::new().await;
    let subjects = ["alice", "Alice", "ALICE"];
    for subject in subjects {
        world.admitted(grant(subject, "db")).await;
        world.admitted(grant(subject, "DB")).await;
    }
    assert_eq!(world.count("binding").await, 6);
    assert_eq!(world.count("target").await, 2);
    for twin in ["key", "Key", "KEY"] {
        let unit = shared::transactions::admit::Admit { key: key(twin), ..admit(grant(&format!("by-{twin}"), "db")) };
        assert!(matches!(world.run(&unit).await, AdmitOutcome::Admitted(_)), "{twin}");
    }
    // What is no ASCII, or could be padded, is no id at all.
    for text in ["", "alicé", "alice ", " alice", "ali\u{200b}ce", "alice\n"] {
        assert!(SubjectId::parse(text).is_err() && TargetKey::parse(text).is_err() && PartitionKey::parse(text).is_err(), "{text:?}");
    }
}

#[tokio::test]
async fn an_operation_id_has_36_characters_everywhere() {
    let right = OperationId::new();
    for text in [String::new(), right.as_str()[..35].to_owned(), format!("{}0", right.as_str()), right.as_str().to_uppercase()] {
        assert!(OperationId::parse(text.clone()).is_err(), "{text:?}");
    }
    let world = World::empty().await;
    let too_long = format!("'{}0'", right.as_str());
    let named = "SELECT CONCAT(table_name) FROM information_schema.columns \
                 WHERE table_schema = DATABASE() AND column_name = 'operation_id' AND table_name <> 'binding_history' ORDER BY 1";
    let tables: Vec<String> = world.rows(named, ()).await;
    assert!(tables.len() >= 9, "{tables:?}");
    for table in tables.iter().filter(|table| *table != "operation_content") {
        let (code, _) = world.sql_refused(&insert(table, &[("operation_id", &too_long)]), ()).await;
        assert_eq!(code, TOO_LONG, "{table}");
    }
    for table in ["operation", "merge_batch_request", "binding"] {
        let (code, _) = world.sql_refused(&insert(table, &[("operation_id", "''")]), ()).await;
        assert!(is_check_violation(code), "{table}: {code}");
    }
}

/// `INTERVAL NULL SECOND` sweeps nothing, silently, and a negative one everything: neither can be set.
#[tokio::test]
async fn no_limit_of_a_partition_can_be_nothing_or_negative() {
    let world = World::new().await;
    let limits = [
        "max_requests",
        "max_bytes",
        "min_requests",
        "max_wait_s",
        "not_started_s",
        "no_progress_s",
        "total_s",
        "content_attempts",
        "infra_attempts",
    ];
    for limit in limits {
        let (code, _) = world.sql_refused(&format!("UPDATE merge_partition SET {limit} = NULL"), ()).await;
        assert_eq!(code, NOT_NULL, "{limit}");
        let (code, _) = world.sql_refused(&format!("UPDATE merge_partition SET {limit} = -1"), ()).await;
        assert_eq!(code, OUT_OF_RANGE, "{limit}");
    }
}

/// A round of nobody takes no slot, and a pass over nothing leases nothing.
#[tokio::test]
async fn a_limit_of_none_takes_nothing_and_leaves_nothing() {
    let world = World::with_waiting(2).await;
    let before = world.snapshot().await;
    assert_eq!(world.run(&Claim { max_requests: Some(0), ..claim("round-1") }).await, ClaimOutcome::NothingToClaim);
    assert_eq!(world.run(&LeaseDeliveries { scope: Scope::All, effects: 0, events: 0, token: LeaseToken::random() }).await, []);
    assert_eq!(world.snapshot().await, before);
}

/// The document's next steps that are columns and indexes.
#[tokio::test]
async fn numbers_of_merge_requests_are_numbers_and_every_look_by_state_and_time_has_its_index() {
    let world = World::empty().await;
    let kind: String = world
        .scalar(
            "SELECT CONCAT(column_type) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'merge_batch' AND column_name = 'mr_iid'",
            (),
        )
        .await;
    assert!(kind.starts_with("bigint") && kind.ends_with("unsigned"), "{kind}");
    let composite = [
        ("merge_batch", "status,updated_at"),
        ("merge_batch", "partition_key,created_at"),
        ("merge_batch_request", "partition_key,batch_id,rank_at,id"),
        ("operation", "status,updated_at"),
        ("binding", "status,expires_at"),
        ("idempotency_record", "expires_at"),
        ("outbox", "delivered_at,given_up_at,due_at"),
    ];
    for (table, columns) in composite {
        let indexes = "SELECT GROUP_CONCAT(column_name ORDER BY seq_in_index) FROM information_schema.statistics \
                       WHERE table_schema = DATABASE() AND table_name = ? GROUP BY index_name";
        let all: Vec<String> = world.rows(indexes, (table,)).await;
        assert!(all.iter().any(|one| one == columns), "{table} ({columns}): {all:?}");
    }
}
