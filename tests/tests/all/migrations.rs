//! Migrations go forward, once, whoever applies them.

use muster_tests::lease::{connect, lease};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

/// A database beside the leased one, which its lease protects as well.
struct Beside {
    url: String,
    name: String,
    session: Conn,
    _lease: muster_tests::lease::Lease,
}

impl Beside {
    async fn new() -> Self {
        let lease = lease().await;
        let url = lease.url.replacen("/muster_test_", "/muster_beside_", 1);
        let name = url.rsplit('/').next().and_then(|rest| rest.split('?').next()).expect("a database").to_owned();
        let mut session = connect(&lease.url, true).await;
        session.query_drop(format!("DROP DATABASE IF EXISTS {name}")).await.expect("dropped");
        session.query_drop(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")).await.expect("created");
        Self { url, name, session, _lease: lease }
    }

    async fn history(&mut self) -> Vec<(i64, String)> {
        let sql = format!("SELECT version, name FROM {}.refinery_schema_history ORDER BY version", self.name);
        self.session.query(sql).await.expect("read")
    }

    async fn drop(mut self) {
        self.session.query_drop(format!("DROP DATABASE {}", self.name)).await.expect("dropped");
    }
}

#[tokio::test]
async fn applied_twice_they_do_nothing_the_second_time() {
    let mut beside = Beside::new().await;
    let applied = local::migrations::apply(&beside.url).await.expect("applied");
    assert!(applied.first().is_some_and(|name| name.contains("the_guarded_tables")), "{applied:?}");
    let history = beside.history().await;
    assert_eq!(history.len(), applied.len());
    assert_eq!(local::migrations::apply(&beside.url).await.expect("nothing to do"), Vec::<String>::new());
    assert_eq!(beside.history().await, history);
    beside.drop().await;
}

#[tokio::test]
async fn applied_by_three_at_once_each_is_applied_by_one() {
    let mut beside = Beside::new().await;
    let (one, two, three) =
        tokio::join!(local::migrations::apply(&beside.url), local::migrations::apply(&beside.url), local::migrations::apply(&beside.url));
    let mut counts = [one.expect("applied").len(), two.expect("applied").len(), three.expect("applied").len()];
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, beside.history().await.len()]);
    beside.drop().await;
}

#[tokio::test]
async fn a_migration_that_was_changed_after_it_was_applied_is_refused() {
    let mut beside = Beside::new().await;
    local::migrations::apply(&beside.url).await.expect("applied");
    let sql = format!("UPDATE {}.refinery_schema_history SET checksum = '1' WHERE version = 1", beside.name);
    beside.session.query_drop(sql).await.expect("changed");
    let error = local::migrations::apply(&beside.url).await.expect_err("another text than was applied");
    assert!(format!("{error:#}").contains("V1__the_guarded_tables"), "{error:#}");
    beside.drop().await;
}
