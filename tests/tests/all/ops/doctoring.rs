//! doctor: each broken precondition is named.

use local::migrations;
use muster_tests::journey::Journey;
use muster_tests::lease::connect;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use serde_json::{Value, json};
use shared::read::doctor::{self, Check};
use shared::{Store, StoreOptions};

use super::ask;

/// What breaks it, what mends it, the check that must fail, and what its problem must name.
type Sabotage = (&'static str, &'static str, &'static str, &'static str);

const SABOTAGES: &[Sabotage] = &[
    (
        "ALTER TABLE merge_batch DROP KEY uk_active_slot",
        "ALTER TABLE merge_batch ADD UNIQUE KEY uk_active_slot (partition_key, active_slot)",
        "schema.keys",
        "merge_batch.uk_active_slot is missing",
    ),
    (
        "ALTER TABLE merge_batch DROP KEY uk_active_slot, ADD KEY uk_active_slot (partition_key, active_slot)",
        "ALTER TABLE merge_batch DROP KEY uk_active_slot, ADD UNIQUE KEY uk_active_slot (partition_key, active_slot)",
        "schema.keys",
        "merge_batch.uk_active_slot is not unique",
    ),
    (
        "ALTER TABLE merge_batch DROP KEY uk_active_slot, ADD UNIQUE KEY uk_active_slot (partition_key, active_slot, id)",
        "ALTER TABLE merge_batch DROP KEY uk_active_slot, ADD UNIQUE KEY uk_active_slot (partition_key, active_slot)",
        "schema.keys",
        "over (partition_key,active_slot,id)",
    ),
    (
        "ALTER TABLE merge_batch MODIFY active_slot TINYINT GENERATED ALWAYS AS (CASE WHEN status IN (1) THEN 1 END) STORED",
        "ALTER TABLE merge_batch MODIFY active_slot TINYINT GENERATED ALWAYS AS (CASE WHEN status IN (1, 4) THEN 1 END) STORED",
        "schema.slot",
        "two batches of one partition may be active",
    ),
    (
        "ALTER TABLE merge_batch DROP CONSTRAINT ck_batch_status",
        "ALTER TABLE merge_batch ADD CONSTRAINT ck_batch_status CHECK (status IN (1, 2, 3, 4))",
        "schema.checks",
        "merge_batch.ck_batch_status is missing",
    ),
    (
        "ALTER TABLE binding MODIFY subject_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL",
        "ALTER TABLE binding MODIFY subject_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL",
        "schema.columns",
        "binding.subject_id has the collation ascii_general_ci",
    ),
    (
        "ALTER TABLE idempotency_record MODIFY request_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL",
        "ALTER TABLE idempotency_record MODIFY request_key VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL",
        "schema.columns",
        "idempotency_record.request_key is varchar(64)",
    ),
    (
        "ALTER TABLE merge_batch_request MODIFY rank_at DATETIME NOT NULL",
        "ALTER TABLE merge_batch_request MODIFY rank_at DATETIME(6) NOT NULL",
        "schema.columns",
        "merge_batch_request.rank_at is datetime and not datetime(6)",
    ),
    (
        "ALTER TABLE merge_batch DROP COLUMN step",
        "ALTER TABLE merge_batch ADD COLUMN step VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'claimed'",
        "schema.columns",
        "merge_batch.step is missing",
    ),
    (
        "ALTER TABLE merge_batch_request ALTER INDEX idx_waiting_rank /*!80016 INVISIBLE *//*M!100600 IGNORED */",
        "ALTER TABLE merge_batch_request ALTER INDEX idx_waiting_rank /*!80016 VISIBLE *//*M!100600 NOT IGNORED */",
        "schema.keys",
        "merge_batch_request.idx_waiting_rank is invisible",
    ),
    (
        "ALTER TABLE merge_batch_request DROP KEY uk_operation_id",
        "ALTER TABLE merge_batch_request ADD UNIQUE KEY uk_operation_id (operation_id)",
        "schema.keys",
        "merge_batch_request.uk_operation_id is missing",
    ),
    (
        "ALTER TABLE audit_record DROP PRIMARY KEY",
        "ALTER TABLE audit_record ADD PRIMARY KEY (dedup_key)",
        "schema.keys",
        "audit_record.PRIMARY is missing",
    ),
    (
        "ALTER TABLE target ADD CONSTRAINT fk_partition FOREIGN KEY (partition_key) REFERENCES merge_partition (partition_key)",
        "ALTER TABLE target DROP FOREIGN KEY fk_partition",
        "schema.foreign_keys",
        "target has the foreign key fk_partition",
    ),
    (
        "CREATE TRIGGER meddle BEFORE UPDATE ON outbox FOR EACH ROW SET NEW.attempts = 0",
        "DROP TRIGGER meddle",
        "schema.triggers",
        "outbox has the trigger meddle",
    ),
    ("ALTER TABLE outbox ENGINE = MyISAM", "ALTER TABLE outbox ENGINE = InnoDB", "schema.tables", "outbox is kept by MyISAM"),
    (
        "RENAME TABLE request_path TO request_paths",
        "RENAME TABLE request_paths TO request_path",
        "schema.tables",
        "request_path is missing",
    ),
    (
        "UPDATE refinery_schema_history SET version = version + 100",
        "UPDATE refinery_schema_history SET version = version - 100",
        "schema.version",
        "the schema is at version 1",
    ),
];

/// MySQL can switch off one CHECK of the schema, MariaDB all of a session's.
const UNENFORCED: Sabotage = (
    "ALTER TABLE operation ALTER CHECK ck_operation_status NOT ENFORCED",
    "ALTER TABLE operation ALTER CHECK ck_operation_status ENFORCED",
    "schema.checks",
    "operation.ck_operation_status is not enforced",
);
const UNENFORCED_IN_SESSION: &str = "check_constraint_checks = 0";

/// What a session is made to say, the check that must fail, and what its problem must name.
const SESSIONS: &[(&str, &str, &str)] = &[
    (concat!(shared::isolation_variable!(), " = 'REPEATABLE-READ'"), "session.isolation", "REPEATABLE-READ"),
    ("time_zone = '+02:00'", "session.time_zone", "+02:00"),
    ("sql_mode = ''", "session.sql_mode", "not strict"),
    ("innodb_lock_wait_timeout = 50", "session.lock_wait_timeout", "50 s"),
    ("wait_timeout = 28800", "session.wait_timeout", "28800 s"),
    ("unique_checks = 0", "session.unique_checks", "a second active batch"),
    ("autocommit = 0", "session.autocommit", "sees the past"),
];

/// A migrated database that no lease hands on: a test that panics leaves it broken.
struct Patient {
    session: Conn,
    name: String,
    url: String,
}

impl Patient {
    async fn new(what: &str) -> Self {
        let given = local::environment::variable("DATABASE_URL").expect("make test sets DATABASE_URL");
        let (address, _) = given.rsplit_once('/').expect("an address with a database");
        let name = format!("muster_doctor_{what}_{}", std::process::id());
        let mut session = connect(&given, true).await;
        session.query_drop(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")).await.expect("a database can be created");
        let url = format!("{address}/{name}");
        migrations::apply(&url).await.expect("the migrations apply");
        session.query_drop(format!("USE {name}")).await.expect("it is there");
        Self { session, name, url }
    }

    async fn checks(&self, session: &[&str]) -> Vec<Check> {
        let session = session.iter().map(|one| (*one).to_owned()).collect();
        let store = Store::new(StoreOptions { session, ..StoreOptions::new(&self.url) }).expect("a well-formed address");
        doctor::examine(&store).await.expect("the database answers")
    }

    async fn is_mariadb(&self) -> bool {
        let store = Store::new(StoreOptions::new(&self.url)).expect("a well-formed address");
        let version: Option<(String,)> = store.first("SELECT VERSION()", ()).await.expect("the database answers");
        version.is_some_and(|(version,)| version.contains("MariaDB"))
    }

    async fn end(mut self) {
        self.session.query_drop(format!("DROP DATABASE {}", self.name)).await.expect("it can be dropped");
    }
}

/// What is wrong, but for the durability of a server that tests are free to run without it.
fn wrong(checks: &[Check]) -> Vec<(&str, &str)> {
    checks
        .iter()
        .filter(|check| !check.ok && check.name != "server.durable")
        .map(|check| (check.name.as_str(), check.problem.as_deref().expect("a problem")))
        .collect()
}

#[tokio::test]
async fn every_sabotage_of_the_schema_is_named() {
    let mut patient = Patient::new("schema").await;
    assert_eq!(wrong(&patient.checks(&[]).await), [], "a fresh schema is well");
    let is_mariadb = patient.is_mariadb().await;
    let sabotages = SABOTAGES.iter().chain((!is_mariadb).then_some(&UNENFORCED));
    for (breaks, mends, name, problem) in sabotages {
        patient.session.query_drop(*breaks).await.unwrap_or_else(|why| panic!("{breaks}: {why}"));
        let checks = patient.checks(&[]).await;
        let found = wrong(&checks);
        assert!(found.iter().any(|(check, told)| check == name && told.contains(problem)), "{breaks}: {found:?}");
        assert!(checks.iter().filter(|check| !check.ok).all(|check| check.todo.is_some()), "{breaks}: nothing to do about it");
        patient.session.query_drop(*mends).await.unwrap_or_else(|why| panic!("{mends}: {why}"));
        assert_eq!(wrong(&patient.checks(&[]).await), [], "{mends} mends it");
    }
    patient.end().await;
}

#[tokio::test]
async fn every_sabotage_of_the_session_is_named_and_no_other() {
    let patient = Patient::new("session").await;
    for (assignment, name, problem) in SESSIONS {
        let checks = patient.checks(&[assignment]).await;
        let found = wrong(&checks);
        assert!(matches!(found[..], [(check, told)] if check == *name && told.contains(problem)), "{assignment}: {found:?}");
    }
    if patient.is_mariadb().await {
        let checks = patient.checks(&[UNENFORCED_IN_SESSION]).await;
        let found = wrong(&checks);
        let told = |(check, told): &(&str, &str)| *check == "schema.checks" && told.contains("is not enforced");
        assert!(!found.is_empty() && found.iter().all(told), "{found:?}");
    }
    patient.end().await;
}

fn check<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let checks = answer["doctor"]["checks"].as_array().expect("checks");
    checks.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no check {name}: {answer}"))
}

#[tokio::test]
async fn the_forge_of_each_open_partition_is_asked_and_nothing_is_written() {
    let journey = Journey::new().await;
    let before = journey.world.snapshot().await;
    let answer = ask(&journey, json!({ "action": "doctor" })).await;
    assert_eq!(answer["outcome"], "done", "{answer}");
    for name in ["schema.slot", "session.affected_rows", "server.writable", "queue.events"] {
        assert_eq!(check(&answer, name)["ok"], true, "{answer}");
    }
    let forge = check(&answer, "forge.default").clone();
    assert_eq!(journey.world.snapshot().await, before, "the doctor wrote something");
    journey.world.sql("UPDATE merge_partition SET project_id = 8", ()).await;
    let answer = ask(&journey, json!({ "action": "doctor" })).await;
    assert!(answer.to_string().contains("was set up for number 8"), "{answer}");
    journey.world.sql("UPDATE merge_partition SET project = 'acme/nowhere'", ()).await;
    let answer = ask(&journey, json!({ "action": "doctor" })).await;
    let lost = check(&answer, "forge.default");
    assert_eq!((&lost["ok"], &answer["doctor"]["healthy"]), (&json!(false), &json!(false)), "{answer}");
    assert_ne!(lost, &forge);
    assert!(lost["problem"].as_str().expect("a problem").contains("acme/nowhere"), "{answer}");
    journey.world.sql("UPDATE merge_partition SET closed_at = CURRENT_TIMESTAMP(6)", ()).await;
    let answer = ask(&journey, json!({ "action": "doctor" })).await;
    assert!(!answer.to_string().contains("forge.default"), "{answer}");
}
