//! A migrated, empty database for one test, leased from a set that outlives the tests.
//!
//! Creating a database costs a second, emptying one a millisecond. The lease is a GET_LOCK held on its own
//! connection, so that it ends with the test, however the test ends.

use std::time::Duration;

use local::migrations;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};

use crate::deadline::until;

/// More than tests run at once on any machine we know; databases are created only as they are needed.
const DATABASES: u32 = 64;
/// What refinery keeps for itself.
const HISTORY_TABLE: &str = "refinery_schema_history";

/// The right to one database, for as long as this lives.
pub struct Lease {
    _session: Conn,
    /// `mysql://…/muster_test_07`.
    pub url: String,
}

/// The address of the server and the name of a database in it, put together again.
struct Server {
    address: String,
    query: String,
}

impl Server {
    fn given() -> Self {
        let url = local::environment::variable("DATABASE_URL").expect(
            "DATABASE_URL is not set: run `make test`, which starts a MySQL and sets it, \
             or set it to mysql://user:password@host:port/muster of a server whose databases muster_test_… may be emptied",
        );
        let (address, query) = url.split_once('?').unwrap_or((&url, ""));
        let (address, _) = address.rsplit_once('/').expect("DATABASE_URL is of the form mysql://user:password@host:port/database");
        Self { address: address.to_owned(), query: if query.is_empty() { String::new() } else { format!("?{query}") } }
    }

    fn url_of(&self, database: &str) -> String {
        format!("{}/{database}{}", self.address, self.query)
    }
}

/// Leases a database that no other test has, brings it to the newest schema, and empties it.
///
/// # Panics
/// When the server cannot be reached or does not allow what a test database needs.
pub async fn lease() -> Lease {
    let server = Server::given();
    // Without a database of its own, so that whoever is connected to a leased one is a leftover.
    let mut session = connect(&server.url_of("mysql"), true).await;
    let database = until("a free test database", async || take_free(&mut session).await).await;
    let url = server.url_of(&database);
    end_leftovers(&mut session, &database).await;
    session
        .query_drop(format!("CREATE DATABASE IF NOT EXISTS {database} CHARACTER SET utf8mb4"))
        .await
        .expect("the user of DATABASE_URL may create databases");
    if let Err(why) = migrations::apply(&url).await {
        // Most often a migration that changed while it was being written.
        eprintln!("{database} is created anew: {why:#}");
        session.query_drop(format!("DROP DATABASE {database}")).await.expect("a test database can be dropped");
        session.query_drop(format!("CREATE DATABASE {database} CHARACTER SET utf8mb4")).await.expect("and created");
        migrations::apply(&url).await.expect("the migrations apply to an empty database");
    }
    empty(&mut session, &database).await;
    Lease { _session: session, url }
}

/// A database of our own beside a leased one, made anew: for what must not be left behind in a database that others get
/// after us, or be asked of one that others had before. It is made anew by the next who wants it, too.
///
/// # Panics
/// When the server cannot be reached or does not allow what a test database needs.
pub async fn spare(purpose: &str) -> Lease {
    let Lease { _session: mut session, url } = lease().await;
    let server = Server::given();
    let leased = url.strip_prefix(&format!("{}/", server.address)).and_then(|rest| rest.split('?').next()).expect("the URL of a lease");
    let name = format!("{leased}_{purpose}");
    session.query_drop(format!("DROP DATABASE IF EXISTS {name}")).await.expect("a test database can be dropped");
    session.query_drop(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")).await.expect("and created");
    let url = server.url_of(&name);
    migrations::apply(&url).await.expect("the migrations apply to an empty database");
    Lease { _session: session, url }
}

/// A session with the clock and the isolation of Muster's own.
pub async fn connect(url: &str, without_database: bool) -> Conn {
    let opts = Opts::from_url(url).expect("DATABASE_URL is of the form mysql://user:password@host:port/database");
    let mut builder = OptsBuilder::from_opts(opts).prefer_socket(false);
    if without_database {
        builder = builder.db_name(None::<String>);
    }
    let mut conn = Conn::new(builder).await.expect("the server of DATABASE_URL can be reached");
    let session = concat!("SET SESSION ", shared::isolation_variable!(), " = 'READ-COMMITTED', time_zone = '+00:00'");
    conn.query_drop(session).await.expect("a session can be set up");
    conn
}

async fn take_free(session: &mut Conn) -> Option<String> {
    for number in 0..DATABASES {
        let name = format!("muster_test_{number:02}");
        let taken: Option<Option<i64>> = session.exec_first("SELECT GET_LOCK(?, 0)", (&name,)).await.expect("GET_LOCK can be asked");
        if taken.flatten() == Some(1) {
            return Some(name);
        }
    }
    None
}

/// A statement that a killed test left waiting for a lock must not run into the next test's rows.
async fn end_leftovers(session: &mut Conn, database: &str) {
    // Not the process list: it shows statements too, and fails on one whose parameters are binary.
    const LEFTOVERS: &str = "SELECT processlist_id FROM performance_schema.threads WHERE processlist_db = ? AND processlist_id IS NOT NULL";
    let mut tries = 0;
    loop {
        let ids: Vec<u64> = session.exec(LEFTOVERS, (database,)).await.expect("the process list can be read");
        if ids.is_empty() {
            return;
        }
        for id in ids {
            // It may be gone already.
            let _ = session.query_drop(format!("KILL {id}")).await;
        }
        tries += 1;
        assert!(tries < 5_000, "connections to {database} do not end, although they were killed");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Deletes all rows: DELETE of a few rows is far cheaper than TRUNCATE, which makes the table anew.
async fn empty(session: &mut Conn, database: &str) {
    let tables: Vec<String> = session
        .exec("SELECT CONCAT(table_name) FROM information_schema.tables WHERE table_schema = ? AND table_type = 'BASE TABLE' AND table_name <> ?", (database, HISTORY_TABLE))
        .await
        .expect("the tables can be listed");
    let looks: Vec<String> = tables.iter().map(|table| format!("(SELECT '{table}' FROM {database}.{table} LIMIT 1)")).collect();
    let filled: Vec<String> = session.query(looks.join(" UNION ALL ")).await.expect("the tables can be read");
    for table in filled {
        session.query_drop(format!("DELETE FROM {database}.{table}")).await.expect("a table can be emptied");
    }
}
