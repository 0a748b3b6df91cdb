//! purge: what nobody needs any more goes, and nothing else.

use std::time::{Duration, Instant};

use adapters::settlement::Progress;
use muster_tests::journey::Journey;
use muster_tests::{World, begin_fail, fail, grant, revoke, succeed, withdraw};
use serde_json::{Value, json};
use shared::Store;
use shared::ids::OperationId;
use shared::state::FailCause;
use shared::transactions::deliveries::Scope;
use shared::transactions::purge::{Purge, PurgeContents, Purged};

use super::{already, order_by, rehearsed_then_done};

const DAY_S: i64 = 24 * 60 * 60;

/// Contents that are kept, by request.
async fn kept(world: &World) -> Vec<String> {
    let rows = world.rows::<(String,)>("SELECT operation_id FROM operation_content ORDER BY operation_id", ()).await;
    rows.into_iter().map(|(id,)| id).collect()
}

fn ids(operations: &[&OperationId]) -> Vec<String> {
    let mut ids: Vec<String> = operations.iter().map(|id| id.to_string()).collect();
    ids.sort();
    ids
}

async fn land(journey: &Journey) {
    let batch = journey.claimed().await;
    journey.settle_until(batch, Progress::Succeeded).await;
}

#[tokio::test]
async fn contents_go_when_their_relationship_is_over_and_not_before() {
    let journey = Journey::new().await;
    let alive = journey.world.admitted(grant("alice", "db")).await;
    let over = journey.world.admitted(grant("bob", "db")).await;
    land(&journey).await;
    let end = journey.world.admitted(revoke("bob", "db")).await;
    land(&journey).await;
    let withdrawn = journey.world.admitted(grant("carol", "db")).await;
    let _ = journey.world.run(&withdraw(&withdrawn)).await;
    let failed = journey.world.admitted(grant("dave", "db")).await;
    let batch = journey.world.claimed("token-f").await;
    let _ = journey.world.run(&begin_fail(batch, FailCause::Content)).await;
    let _ = journey.world.run(&fail(batch, "settler")).await;
    // The branches are still to be deleted, and whoever does it asks the forge about these files.
    already(&journey, "purge", json!({})).await;
    let soon = journey.runner_in(600).await;
    let _ = soon.drive(Scope::All, Instant::now() + Duration::from_secs(20)).await.expect("the database answers");
    let done = rehearsed_then_done(&journey, "purge", json!({})).await;
    let removed = &done["after"]["removed"];
    assert_eq!((&removed["contents"], &removed["paths"], &removed["waiting_rows"]), (&json!(2), &json!(2), &json!(2)), "{done}");
    assert_eq!((&removed["idempotency_records"], &removed["outbox_rows"]), (&json!(0), &json!(0)), "{done}");
    assert_eq!(done["after"]["finished"], true, "{done}");
    assert!(!kept(&journey.world).await.contains(&over.to_string()) && !kept(&journey.world).await.contains(&end.to_string()));
    already(&journey, "purge", json!({})).await;
    // Before the clock is moved: the invariants look for events that are a week old by ours and gone by the moved one.
    journey.world.assert_invariants().await;
    // What is left of the rest goes by its date; a FAILED request never does.
    let later = journey.runner_in(31 * DAY_S).await;
    let done = order_by(&later, "purge", json!({})).await;
    assert_eq!(done["after"]["removed"]["contents"], 1, "{done}");
    assert_eq!(kept(&journey.world).await, ids(&[&alive, &failed]));
    assert_eq!(journey.world.count("merge_batch_request").await, 2);
    assert_eq!(journey.world.count("idempotency_record").await, 1, "the key of the FAILED request still tells");
    assert_eq!(journey.world.count("outbox WHERE delivered_at IS NOT NULL").await, 0);
    for stays in ["operation", "merge_batch_member", "binding_history"] {
        assert!(journey.world.count(stays).await >= 4, "{stays}");
    }
    // What lives can still be taken back by what its grant created.
    let taken_back = journey.world.admitted(revoke("alice", "db")).await;
    let path: String =
        journey.world.scalar("SELECT CONVERT(path USING utf8mb4) FROM request_path WHERE operation_id = ?", (&taken_back,)).await;
    assert_eq!(path, "access/db/alice.json");
}

#[tokio::test]
async fn what_a_grant_created_is_known_until_its_revoke_has_merged() {
    let world = World::with_waiting(1).await;
    let granted = world.waiting[0].clone();
    let batch = world.claimed("token-1").await;
    let _ = world.run(&succeed(batch, "settler")).await;
    let store = world.store_in(400 * DAY_S).await;
    let nothing_goes = async |what: &str| {
        // Nothing of the batch is to be performed any more, so only the relationship keeps the content.
        world.sql("UPDATE outbox SET delivered_at = CURRENT_TIMESTAMP(6) WHERE delivered_at IS NULL", ()).await;
        let purged = store.run(&PurgeContents { after: None, dry_run: false }).await.expect("an outcome");
        assert_eq!(purged.total(), 0, "{what}");
        assert_eq!(world.count(&format!("request_path WHERE operation_id = '{granted}'")).await, 1, "{what}");
    };
    nothing_goes("ACTIVE").await;
    world.admitted(revoke("subject-1", "db")).await;
    nothing_goes("REVOKING").await;
    let batch = world.claimed("token-2").await;
    let _ = world.run(&begin_fail(batch, FailCause::Content)).await;
    let _ = world.run(&fail(batch, "settler")).await;
    nothing_goes("FAILED").await;
}

#[tokio::test]
async fn nothing_goes_before_its_time() {
    let journey = Journey::new().await;
    let withdrawn = journey.world.admitted(grant("alice", "db")).await;
    let _ = journey.world.run(&withdraw(&withdrawn)).await;
    journey.world.admitted(grant("bob", "db")).await;
    let _ = journey.relay.drive(Scope::All, Instant::now() + Duration::from_secs(20)).await.expect("the database answers");
    let removed = async |seconds: i64| {
        let store: Store = journey.world.store_in(seconds).await;
        let mut all = Purged::default();
        loop {
            let purged = store.run(&Purge).await.expect("an outcome");
            if purged.total() == 0 {
                return all;
            }
            all.add(&purged);
        }
    };
    assert_eq!(removed(7 * DAY_S - 60).await, Purged::default());
    let week = removed(7 * DAY_S + 60).await;
    assert_eq!((week.idempotency, week.contents), (1, 0), "the key of the waiting request stays");
    assert_eq!(week.outbox, 3, "two admissions and a withdrawal were published");
    assert_eq!(removed(30 * DAY_S - 60).await, Purged::default());
    let month = removed(30 * DAY_S + 60).await;
    assert_eq!((month.contents, month.paths, month.waiting_rows), (1, 1, 0));
}

#[tokio::test]
async fn undelivered_and_given_up_effects_stay() {
    let world = World::with_waiting(1).await;
    world.sql("UPDATE outbox SET given_up_at = CURRENT_TIMESTAMP(6)", ()).await;
    world.admitted(grant("zoe", "db")).await;
    let later = world.store_in(400 * DAY_S).await;
    let purged = later.run(&Purge).await.expect("an outcome");
    assert_eq!((purged.outbox, world.count("outbox").await), (0, 2));
}

/// 2,050 living relationships, and then three that are over.
async fn with_many_living() -> World {
    let world = World::new().await;
    const OPERATIONS: &str = "INSERT INTO operation (operation_id, partition_key, subject_id, target_key, action, status, requested_by, settled_at) \
        SELECT CONCAT('01890000-', LPAD(HEX(n), 4, '0'), '-7000-8000-000000000000'), 'default', CONCAT('s', n), 'db', 1, 3, 'ann', CURRENT_TIMESTAMP(6) \
        FROM JSON_TABLE(?, '$[*]' COLUMNS (n INT PATH '$')) AS j";
    let numbers = Value::from((0..2_053).collect::<Vec<u32>>()).to_string();
    world.sql(&OPERATIONS.replace("HEX(n)", "LOWER(HEX(n))"), (numbers,)).await;
    world.sql("INSERT INTO operation_content SELECT operation_id, '[]' FROM operation", ()).await;
    world
        .sql(
            "INSERT INTO binding (subject_id, target_key, status, operation_id, granted_by_operation_id) \
             SELECT subject_id, target_key, IF(operation_id >= '01890000-0802', 6, 2), operation_id, operation_id FROM operation",
            (),
        )
        .await;
    world
}

#[tokio::test]
async fn the_living_do_not_hide_what_lies_behind_them() {
    let world = with_many_living().await;
    let store = world.store();
    let first = store.run(&PurgeContents { after: None, dry_run: false }).await.expect("an outcome");
    assert_eq!(first.total(), 0);
    let next = first.next.expect("more to look at");
    assert_eq!(next.as_str(), "01890000-07cf-7000-8000-000000000000", "the window ends at the 2,000th");
    let second = store.run(&PurgeContents { after: Some(next), dry_run: true }).await.expect("an outcome");
    assert_eq!((second.contents, second.next, world.count("operation_content").await), (3, None, 2_053));
    // The sweep's own unit looks from anywhere: one that comes upon nothing says nothing about the next.
    let mut removed = 0;
    for _ in 0..2_000 {
        removed += store.run(&Purge).await.expect("an outcome").contents;
        if removed == 3 {
            break;
        }
    }
    assert_eq!((removed, world.count("operation_content").await), (3, 2_050));
}
