//! The one runner of units: what it retries, what it never goes on after, and that nothing is left half-written.

use std::time::Duration;

use muster_tests::deadline::{until, within};
use muster_tests::probes::{At, Count, Fault, Pause};
use muster_tests::steps::{Step, Steps};
use muster_tests::*;
use mysql_async::prelude::Queryable;
use shared::{Store, StoreError, StoreOptions};
use tokio::net::TcpListener;

const INSERT_A: &str = "/* test.insert_a */ INSERT INTO audit_record (dedup_key, action, actor) VALUES ('a', 'test', 'test')";
const INSERT_B: &str = "/* test.insert_b */ INSERT INTO audit_record (dedup_key, action, actor) VALUES ('b', 'test', 'test')";
/// Breaks a CHECK: no rule of the runner covers it.
const INSERT_BAD: &str = "/* test.insert_bad */ INSERT INTO audit_record (dedup_key, action, actor) VALUES ('', 'test', 'test')";
const TOUCH_ONE: &str = "/* test.touch_one */ UPDATE target SET version = version + 1 WHERE target_key = 'one'";
const TOUCH_TWO: &str = "/* test.touch_two */ UPDATE target SET version = version + 1 WHERE target_key = 'two'";

async fn recorded(world: &World) -> Vec<String> {
    world.rows("SELECT dedup_key FROM audit_record ORDER BY dedup_key", ()).await
}

/// Two targets for units to wait for one another.
async fn world_with_targets() -> World {
    World::new().await.with_target("one", "default", None).await.with_target("two", "default", None).await
}

async fn connection_of(store: &Store) -> u64 {
    store.first::<(u64,)>("SELECT CONNECTION_ID()", ()).await.expect("an answer").expect("a row").0
}

#[tokio::test]
async fn a_unit_goes_on_and_commits_after_an_answered_duplicate() {
    let world = World::new().await;
    let unit = Steps(vec![Step::InsertNew(INSERT_A), Step::InsertNew(INSERT_A), Step::InsertNew(INSERT_B)]);
    assert_eq!(world.run(&unit).await, ["new", "duplicate of PRIMARY", "new"]);
    assert_eq!(recorded(&world).await, ["a", "b"]);
}

#[tokio::test]
async fn a_refusal_takes_back_what_was_written_before_it() {
    let world = World::new().await;
    assert_eq!(world.run(&Steps(vec![Step::Write(INSERT_A), Step::Refuse])).await, ["written"]);
    assert_eq!(recorded(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_statement_that_no_rule_covers_is_named_and_leaves_nothing() {
    let world = World::new().await;
    let error = world.try_run(&Steps(vec![Step::Write(INSERT_A), Step::Write(INSERT_BAD)])).await.expect_err("a broken CHECK");
    assert!(matches!(&error, StoreError::Refused { unit: "steps", statement, .. } if statement == "test.insert_bad"), "{error:?}");
    assert!(!error.is_fault());
    assert_eq!(recorded(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_unit_that_swallows_an_error_can_neither_go_on_nor_commit() {
    let world = World::new().await;
    let goes_on = Steps(vec![Step::Write(INSERT_A), Step::Swallow(INSERT_BAD), Step::Write(INSERT_B)]);
    let error = world.try_run(&goes_on).await.expect_err("a poisoned transaction");
    assert!(matches!(&error, StoreError::Corrupt(what) if what.contains("went on after a failed statement")), "{error:?}");
    let commits = Steps(vec![Step::Write(INSERT_A), Step::Swallow(INSERT_BAD)]);
    let error = world.try_run(&commits).await.expect_err("a poisoned transaction");
    assert!(matches!(&error, StoreError::Corrupt(what) if what.contains("wanted to commit after a failed statement")), "{error:?}");
    assert_eq!(recorded(&world).await, Vec::<String>::new());
    // The connection is clean again.
    assert_eq!(world.run(&Steps(vec![Step::Write(INSERT_B)])).await, ["written"]);
}

#[tokio::test]
async fn a_write_that_changes_another_number_of_rows_than_it_must_is_corruption() {
    let world = world_with_targets().await;
    let both = "/* test.touch_both */ UPDATE target SET version = version + 1";
    let error = world.try_run(&Steps(vec![Step::Write(INSERT_A), Step::Write(both)])).await.expect_err("two rows instead of one");
    assert!(
        matches!(&error, StoreError::Corrupt(what) if what.contains("test.touch_both of steps changed 2 rows instead of 1")),
        "{error}"
    );
    assert_eq!(recorded(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_unexpected_null_is_corruption_and_not_a_panic() {
    let world = World::new().await;
    let error = world.try_run(&Steps(vec![Step::Write(INSERT_A), Step::Read("/* test.null */ SELECT NULL")])).await.expect_err("no number");
    assert!(matches!(&error, StoreError::Corrupt(what) if what.contains("test.null")), "{error:?}");
    let error = world.store().first::<(i64,)>("/* test.text */ SELECT 'text'", ()).await.expect_err("no number");
    assert!(matches!(&error, StoreError::Corrupt(what) if what.contains("test.text")), "{error:?}");
    assert_eq!(recorded(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_deadlocks_victim_is_run_again_whole() {
    let world = world_with_targets().await;
    let mut rival = world.session().await;
    rival.query_drop("START TRANSACTION").await.expect("begun");
    // The heavier of the two is never the victim.
    for number in 0..50 {
        let sql = format!("INSERT INTO audit_record (dedup_key, action, actor) VALUES ('rival-{number}', 'test', 'test')");
        rival.query_drop(sql).await.expect("written");
    }
    rival.query_drop(TOUCH_TWO).await.expect("written");
    let pause = Pause::new("steps", At::Named("test.touch_two"));
    let store = world.store_probed(pause.clone());
    let unit = Steps(vec![Step::Write(INSERT_A), Step::Write(TOUCH_ONE), Step::Write(TOUCH_TWO)]);
    let running = tokio::spawn(async move { store.run(&unit).await });
    pause.reached().await;
    let rivalling = tokio::spawn(async move {
        rival.query_drop(TOUCH_ONE).await.expect("the rival is never the victim");
        rival.query_drop("COMMIT").await.expect("committed");
    });
    world.until_somebody_waits_for_a_lock().await;
    pause.release();
    within("the rival", rivalling).await.expect("no panic");
    let outcome = within("the unit", running).await.expect("no panic").expect("the rerun commits");
    assert_eq!(outcome, ["written", "written", "written"]);
    assert_eq!(pause.met(), 2, "it was run again");
    assert_eq!(world.count("audit_record WHERE dedup_key = 'a'").await, 1);
    let versions: Vec<u64> = world.rows("SELECT version FROM target ORDER BY target_key", ()).await;
    assert_eq!(versions, [3, 3], "each of the two touched each target once");
}

fn undone() -> StoreError {
    StoreError::Undone { code: 1213 }
}

#[tokio::test]
async fn a_unit_that_is_undone_again_and_again_is_given_up_as_a_fault_after_five_reruns() {
    let world = World::new().await;
    let unit = Steps(vec![Step::Write(INSERT_A)]);
    let fault = Fault::new("steps", At::BeforeCommit, 6, undone);
    let error = world.store_probed(fault.clone()).run(&unit).await.expect_err("undone six times");
    assert!(matches!(error, StoreError::Undone { code: 1213 }) && error.is_fault(), "{error:?}");
    assert_eq!(fault.met(), 6);
    assert_eq!(recorded(&world).await, Vec::<String>::new());
    let fault = Fault::new("steps", At::BeforeCommit, 5, undone);
    assert_eq!(world.store_probed(fault.clone()).run(&unit).await.expect("the sixth run commits"), ["written"]);
    assert_eq!(fault.met(), 6);
    assert_eq!(recorded(&world).await, ["a"]);
}

#[tokio::test]
async fn a_lock_that_is_not_given_in_time_leaves_nothing_and_the_connection_usable() {
    let world = world_with_targets().await;
    let mut holder = world.session().await;
    holder.query_drop("START TRANSACTION").await.expect("begun");
    holder.query_drop(TOUCH_ONE).await.expect("written");
    let store = world.store_with(|options| options.session = vec!["innodb_lock_wait_timeout = 1".to_owned()]);
    let connection = connection_of(&store).await;
    let error = store.run(&Steps(vec![Step::Write(INSERT_A), Step::Write(TOUCH_ONE)])).await.expect_err("a held row");
    assert!(matches!(error, StoreError::LockWait) && error.is_fault(), "{error:?}");
    assert_eq!(recorded(&world).await, Vec::<String>::new());
    holder.query_drop("ROLLBACK").await.expect("rolled back");
    assert_eq!(store.run(&Steps(vec![Step::Write(INSERT_A), Step::Write(TOUCH_ONE)])).await.expect("committed").len(), 2);
    assert_eq!(connection_of(&store).await, connection);
}

#[tokio::test]
async fn a_connection_that_died_while_idle_is_replaced() {
    let world = World::new().await;
    let count = Count::new();
    let store = world.store_with(|options| options.probe = Some(count.clone()));
    let dead = connection_of(&store).await;
    world.kill(dead).await;
    assert_eq!(store.run(&Steps(vec![Step::Write(INSERT_A)])).await.expect("committed"), ["written"]);
    assert_eq!(count.statements(), 1, "found at BEGIN, before any statement of the unit");
    let dead = connection_of(&store).await;
    world.kill(dead).await;
    assert_ne!(connection_of(&store).await, dead, "a plain read finds it too");
}

#[tokio::test]
async fn a_connection_that_dies_in_mid_unit_costs_a_rerun_on_a_fresh_one() {
    let world = World::new().await;
    let pause = Pause::new("steps", At::Statement(2));
    let store = world.store_with(|options| options.probe = Some(pause.clone()));
    let connection = connection_of(&store).await;
    let running = tokio::spawn({
        let store = store.clone();
        async move { store.run(&Steps(vec![Step::Write(INSERT_A), Step::Write(INSERT_B)])).await }
    });
    pause.reached().await;
    world.kill(connection).await;
    pause.release();
    assert_eq!(running.await.expect("no panic").expect("the rerun commits"), ["written", "written"]);
    assert_eq!(recorded(&world).await, ["a", "b"]);
    assert_ne!(connection_of(&store).await, connection);
}

#[tokio::test]
async fn a_unit_that_does_not_end_loses_its_connection_and_with_it_its_locks() {
    let world = world_with_targets().await;
    let pause = Pause::new("steps", At::BeforeCommit);
    let store = world.store_with(|options| {
        options.unit_limit = Duration::from_millis(200);
        options.probe = Some(pause);
    });
    let connection = connection_of(&store).await;
    let unit = Steps(vec![Step::Write(INSERT_A), Step::Write(TOUCH_ONE)]);
    let error = within("the limit of a unit", store.run(&unit)).await.expect_err("it never ends");
    assert!(matches!(error, StoreError::TimeLimit { unit: "steps", limit_ms: 200 }) && error.is_fault(), "{error:?}");
    // Another may take the row, once the server has seen the end of the connection.
    assert_eq!(world.run(&Steps(vec![Step::Write(TOUCH_ONE)])).await, ["written"]);
    assert_eq!(recorded(&world).await, Vec::<String>::new());
    assert_ne!(connection_of(&store).await, connection);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let world = world_with_targets().await;
    let pause = Pause::new("steps", At::BeforeCommit);
    let store = world.store_with(|options| options.probe = Some(pause.clone()));
    let running = tokio::spawn({
        let store = store.clone();
        async move { store.run(&Steps(vec![Step::Write(INSERT_A), Step::Write(TOUCH_ONE)])).await.map(drop) }
    });
    pause.reached().await;
    running.abort();
    assert!(running.await.expect_err("aborted").is_cancelled());
    assert_eq!(store.run(&Steps(vec![Step::Write(INSERT_B), Step::Write(TOUCH_ONE)])).await.expect("committed").len(), 2);
    assert_eq!(recorded(&world).await, ["b"]);
}

#[tokio::test]
async fn a_demoted_writer_is_a_fault_and_its_connection_is_dropped() {
    let world = World::new().await;
    let count = Count::new();
    let store = world.store_with(|options| {
        options.session = vec!["/*!80016 transaction_read_only *//*M!100600 tx_read_only */ = 1".to_owned()];
        options.probe = Some(count.clone());
    });
    let connection = connection_of(&store).await;
    let error = store.run(&Steps(vec![Step::Write(INSERT_A)])).await.expect_err("a server that does not write");
    assert!(matches!(error, StoreError::Unreachable(_)) && error.is_fault(), "{error:?}");
    assert_eq!(count.of("test.insert_a"), 3, "tried on three connections");
    assert_ne!(connection_of(&store).await, connection);
}

#[tokio::test]
async fn a_server_that_is_not_there_or_does_not_speak_is_a_fault_in_time() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let options =
        StoreOptions { connect_limit: Duration::from_millis(100), ..StoreOptions::new(format!("mysql://root@127.0.0.1:{port}/x")) };
    let silent = Store::new(options.clone()).expect("a right address");
    let error = within("the answer", silent.run(&Steps(vec![]))).await.expect_err("nobody speaks");
    assert!(matches!(error, StoreError::Unreachable(_)) && error.is_fault(), "{error:?}");
    drop(listener);
    let absent = Store::new(options).expect("a right address");
    let error = within("the answer", absent.first::<(i64,)>("SELECT 1", ())).await.expect_err("nobody listens");
    assert!(matches!(error, StoreError::Unreachable(_)) && error.is_fault(), "{error:?}");
}

#[tokio::test]
async fn an_address_of_another_form_is_refused_without_quoting_its_password() {
    for url in ["postgres://u:secret@h/db", "secret", "mysql://u:secret@h:port/db"] {
        let why = Store::new(StoreOptions::new(url)).err().expect("not an address of MySQL");
        assert!(!why.contains("secret") && why.contains("mysql://user:password@host:port/database"), "{why}");
    }
}

#[tokio::test]
async fn a_session_has_the_isolation_the_clock_and_the_limits_of_the_design() {
    let world = World::new().await;
    let store = world.store();
    let row: Option<(String, String, u64, u64, String)> = store
        .first(
            concat!("SELECT ", shared::isolation_of_session!(), ", @@time_zone, @@innodb_lock_wait_timeout, @@wait_timeout, @@sql_mode"),
            (),
        )
        .await
        .expect("an answer");
    let (isolation, zone, lock_wait, wait, mode) = row.expect("a row");
    assert_eq!((isolation.as_str(), zone.as_str(), lock_wait, wait), ("READ-COMMITTED", "+00:00", 3, 10));
    assert!(mode.contains("STRICT_ALL_TABLES"), "{mode}");
}

#[tokio::test]
async fn one_connection_serves_many_callers_in_turn() {
    let world = World::new().await;
    let store = world.store_with(|options| options.connections = 1);
    let connection = connection_of(&store).await;
    let callers: Vec<_> = (0..16)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.run(&Steps(vec![Step::InsertNew(INSERT_A), Step::Refuse])).await })
        })
        .collect();
    for caller in callers {
        assert_eq!(within("a caller", caller).await.expect("no panic").expect("an outcome"), ["new"]);
    }
    assert_eq!(connection_of(&store).await, connection);
    let count = async || world.count("performance_schema.threads WHERE processlist_db = DATABASE() AND processlist_id IS NOT NULL").await;
    // The world's own session, and this store's.
    until("one connection", async || (count().await == 2).then_some(())).await;
}
