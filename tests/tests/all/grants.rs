//! docs/sql/grants.sql: each function's work, done by the database user that it is given there, and what none may do.

use std::fs;
use std::path::Path;

use adapters::forge::gitlab::GitLab;
use adapters::relay::Relay;
use adapters::settlement::{PATIENCE, Progress, settle};
use local::gitlab::PipelinePlan;
use muster_tests::deadline::until;
use muster_tests::journey::{Journey, Published, stop_at};
use muster_tests::{World, admit, grant, request, revoke, withdraw};
use serde_json::{Value, json};
use shared::ids::BatchId;
use shared::transactions::admit::AdmitOutcome;
use shared::{Store, StoreOptions};

/// Functions that have a user, as it is called after `muster_`.
const USERS: [&str; 5] = ["admit", "claim_round", "settle", "sweep", "ops"];
const PASSWORD: &str = "grants-of-a-test-1";

/// A journey whose parts each come as the user of their function.
struct Divided {
    journey: Journey,
}

impl Divided {
    /// Makes this database's own copies of the users, with the grants of the document.
    async fn new() -> Self {
        let journey = Journey::new().await;
        let database = database(&journey.world).await;
        for user in USERS {
            let name = named(&database, user);
            // Left by an earlier test, maybe with grants that the document has no more.
            journey.world.sql(&format!("DROP USER IF EXISTS '{name}'@'%'"), ()).await;
            journey.world.sql(&format!("CREATE USER '{name}'@'%' IDENTIFIED BY '{PASSWORD}'"), ()).await;
        }
        for statement in statements().iter().filter(|one| one.starts_with("GRANT") && !one.contains("muster_migrate")) {
            let here = statement.replace("'muster_", &format!("'{}", named(&database, ""))).replace(" muster.", &format!(" {database}."));
            journey.world.sql(&here, ()).await;
        }
        Self { journey }
    }

    async fn url(&self, user: &str) -> String {
        let database = database(&self.journey.world).await;
        let mut url = String::new();
        let _ = self.journey.world.store_with(|options| url.clone_from(&options.url));
        let mut url: reqwest::Url = url.parse().expect("a lease has a URL");
        url.set_username(&named(&database, user)).expect("a user fits into it");
        url.set_password(Some(PASSWORD)).expect("a password fits into it");
        url.into()
    }

    async fn store(&self, user: &str) -> Store {
        let url = self.url(user).await;
        self.journey.world.store_with(|options| options.url = url)
    }

    async fn runner(&self, user: &str) -> Relay<GitLab, Published> {
        let url = self.url(user).await;
        self.journey.runner(|options: &mut StoreOptions| options.url = url)
    }

    async fn admitted(&self, request: shared::request::Request) -> shared::ids::OperationId {
        match self.store("admit").await.run(&admit(request)).await.expect("admit may do this") {
            AdmitOutcome::Admitted(admission) => admission.operation,
            other => panic!("not admitted: {other:?}"),
        }
    }

    async fn claimed(&self) -> BatchId {
        let answer = claim_round::handle(&self.runner("claim_round").await, json!({}), stop_at()).await.expect("a round answers");
        let answer = serde_json::to_value(answer).expect("JSON");
        assert_eq!(answer["rounds"][0]["outcome"], "claimed", "{answer}");
        serde_json::from_value(answer["rounds"][0]["batch_id"].clone()).expect("a batch id")
    }

    async fn settled(&self, batch: BatchId, wanted: Progress) {
        let runner = self.runner("settle").await;
        until(&format!("{wanted:?}"), async || {
            let progress = settle(&runner, batch, PATIENCE, stop_at()).await.expect("settle may do this");
            assert!(progress == wanted || progress == Progress::Waiting, "the batch came to {progress:?}");
            (progress == wanted).then_some(())
        })
        .await;
    }

    async fn ordered(&self, mut order: Value) -> Value {
        order["actor"] = "operator".into();
        order["reason"] = "a test".into();
        let answer = ops::handle(&self.runner("ops").await, order.clone(), stop_at()).await.expect("ops may do this");
        assert!(answer["outcome"] == "done" || answer["outcome"] == "already", "{order}: {answer}");
        answer
    }
}

async fn database(world: &World) -> String {
    world.scalar("SELECT DATABASE()", ()).await
}

/// Users are the server's, so each database of the tests has its own; a name takes 32 characters.
fn named(database: &str, user: &str) -> String {
    format!("{}_{user}", database.replace("muster_test", "g"))
}

/// The document's statements, without its comments.
fn statements() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sql/grants.sql");
    let text = fs::read_to_string(path).expect("the document is there");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    lines.join("\n").split(';').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

#[tokio::test]
async fn a_request_is_admitted_claimed_and_merged_by_three_users() {
    let all = Divided::new().await;
    all.ordered(json!({"action": "set_target", "target_key": "db", "partition": "default", "capacity": 3})).await;
    let granted = all.admitted(grant("alice", "db")).await;
    let batch = all.claimed().await;
    all.settled(batch, Progress::Succeeded).await;
    assert_eq!(all.journey.status_of(&granted).await, "MERGED");
    let revoked = all.admitted(revoke("alice", "db")).await;
    let batch = all.claimed().await;
    all.settled(batch, Progress::Succeeded).await;
    assert_eq!(all.journey.status_of(&revoked).await, "MERGED");
    let waiting = all.admitted(grant("bob", "db")).await;
    let ended = all.store("admit").await.run(&withdraw(&waiting)).await;
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(all.journey.status_of(&waiting).await, "WITHDRAWN");
    for user in USERS {
        let seen = shared::read::status::status(&all.store(user).await).await;
        assert!(seen.is_ok(), "{user} may not read the status: {seen:?}");
    }
    all.journey.world.assert_invariants().await;
}

#[tokio::test]
async fn what_fails_is_settled_ordered_and_swept_by_its_users() {
    let all = Divided::new().await;
    all.journey.forge.set_pipeline(PipelinePlan::fail(std::time::Duration::from_millis(50)));
    let culprit = all.admitted(grant("mallory", "db")).await;
    let batch = all.claimed().await;
    all.settled(batch, Progress::Failed).await;
    assert_eq!(all.journey.status_of(&culprit).await, "FAILED");

    all.journey.forge.set_pipeline(PipelinePlan::pass(std::time::Duration::from_secs(600)));
    all.admitted(grant("alice", "db")).await;
    let batch = all.claimed().await;
    all.ordered(json!({"action": "requeue", "batch_id": batch})).await;
    all.ordered(json!({"action": "pause", "partition": "default"})).await;
    all.ordered(json!({"action": "resume", "partition": "default"})).await;

    // What has expired is rejected, what is active is revoked when its time has come, what is old is purged.
    all.journey.forge.set_pipeline(PipelinePlan::pass(std::time::Duration::from_millis(50)));
    let body = json!({"subject_id": "carol", "target_key": "db", "action": "grant", "expires_at": "2099-01-01T00:00:00Z"});
    all.admitted(request(&body)).await;
    let batch = all.claimed().await;
    all.settled(batch, Progress::Succeeded).await;
    all.journey.world.sql("UPDATE binding SET expires_at = CURRENT_TIMESTAMP(6) WHERE subject_id = 'carol'", ()).await;
    all.journey.world.sql("UPDATE outbox SET delivered_at = '2000-01-01' WHERE delivered_at IS NOT NULL", ()).await;
    let report = sweep::handle(&all.runner("sweep").await, json!({}), stop_at()).await.expect("a sweep answers");
    let report = serde_json::to_value(report).expect("JSON");
    assert_eq!(report["problems"], json!([]), "{report}");
    assert_eq!(report["expiry_revokes"], 1, "{report}");
    assert!(report["purged_rows"].as_u64() > Some(0), "{report}");
    all.journey.world.sql("UPDATE idempotency_record SET expires_at = '2000-01-01'", ()).await;
    all.ordered(json!({"action": "purge"})).await;
    // No look at the invariants here: the events that they look for were made old and purged.
}

#[tokio::test]
async fn no_function_may_change_the_schema_or_rewrite_what_happened() {
    const FORBIDDEN: [&str; 11] = [
        "UPDATE audit_record SET actor = 'somebody'",
        "DELETE FROM audit_record",
        "UPDATE binding_history SET actor = 'somebody'",
        "DELETE FROM binding_history",
        "DELETE FROM operation",
        "DELETE FROM binding",
        "DELETE FROM merge_batch",
        "DELETE FROM merge_partition",
        "DELETE FROM target",
        "DROP TABLE outbox",
        "ALTER TABLE merge_batch DROP KEY uk_active_slot",
    ];
    let all = Divided::new().await;
    for user in USERS {
        let store = all.store(user).await;
        for statement in FORBIDDEN {
            let answer = store.rows::<mysql_async::Row>(statement, ()).await;
            let error = format!("{:?}", answer.err());
            assert!(error.contains("1142"), "{user} may {statement}: {error}");
        }
        // A right of one function is not another's.
        let mine = match user {
            "claim_round" => "INSERT INTO merge_partition (partition_key) VALUES ('x')",
            "ops" | "settle" | "sweep" => "INSERT INTO merge_batch (partition_key) VALUES ('x')",
            _ => "UPDATE merge_batch SET status = 2",
        };
        let error = format!("{:?}", store.rows::<mysql_async::Row>(mine, ()).await.err());
        assert!(error.contains("1142"), "{user} may {mine}: {error}");
    }
}
