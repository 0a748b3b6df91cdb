//! The state a test begins in, and what it looks at afterwards.

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Opts, Params, Row};
use shared::ids::{BatchId, OperationId};
use shared::transactions::admit::AdmitOutcome;
use shared::transactions::claim::ClaimOutcome;
use shared::{Guarded, Store, StoreError, StoreOptions};
use tokio::sync::Mutex;

use crate::commands::{admit, claim, grant};
use crate::deadline::{DEADLINE, until};
use crate::lease::{Lease, connect, lease};
use crate::mutated::Mutated;
use crate::proxy::{Cut, Harm, Moment, Proxy};

/// Connections of the store that [`World::run`] uses.
const CONNECTIONS: usize = 4;

/// A database that only this test has, and a store on it.
pub struct World {
    store: Store,
    pub(crate) sql: Mutex<Conn>,
    lease: Lease,
    /// Requests admitted by [`World::with_waiting`], oldest first.
    pub waiting: Vec<OperationId>,
}

impl World {
    /// An empty database: no partition yet.
    pub async fn empty() -> Self {
        Self::on(lease().await).await
    }

    /// An empty database that nobody gets after us, however it is left; made anew, which takes a second.
    pub async fn spare(purpose: &str) -> Self {
        Self::on(crate::lease::spare(purpose).await).await
    }

    async fn on(lease: Lease) -> Self {
        let sql = Mutex::new(connect(&lease.url, false).await);
        let store = store_of(StoreOptions { connections: CONNECTIONS, ..StoreOptions::new(&lease.url) });
        Self { store, sql, lease, waiting: Vec::new() }
    }

    /// The partition `default`, and nothing else.
    pub async fn new() -> Self {
        Self::empty().await.with_partition("default").await
    }

    /// The partition `default` with so many grants waiting, each for a subject of its own.
    pub async fn with_waiting(count: usize) -> Self {
        let mut world = Self::new().await;
        for number in 1..=count {
            world.waiting.push(world.admitted(grant(&format!("subject-{number}"), "db")).await);
        }
        world
    }

    pub async fn with_partition(self, key: &str) -> Self {
        let branch = if key == "default" { "main" } else { key };
        self.sql(
            "INSERT INTO merge_partition (partition_key, project, target_branch, path_template, allowed_prefixes) \
             VALUES (?, 'acme/access', ?, 'access/{target_key}/{subject_id}.json', '[\"access/\"]')",
            (key, branch),
        )
        .await;
        self
    }

    /// A target with so many seats; `None`: not counted.
    pub async fn with_target(self, key: &str, partition: &str, capacity: Option<u64>) -> Self {
        self.sql("INSERT INTO target (target_key, partition_key, capacity) VALUES (?, ?, ?)", (key, partition, capacity)).await;
        self
    }

    /// Runs a unit that must come to an outcome.
    ///
    /// # Panics
    /// On any fault or corruption.
    pub async fn run<G: Guarded>(&self, unit: &G) -> G::Outcome {
        match self.store.run(unit).await {
            Ok(outcome) => outcome,
            Err(error) => panic!("{} came to no outcome: {error} ({error:?})", G::NAME),
        }
    }

    pub async fn try_run<G: Guarded>(&self, unit: &G) -> Result<G::Outcome, StoreError> {
        self.store.run(unit).await
    }

    /// Admits a request that must be admitted.
    pub async fn admitted(&self, request: shared::request::Request) -> OperationId {
        let unit = admit(request);
        match self.run(&unit).await {
            AdmitOutcome::Admitted(admission) => admission.operation,
            other => panic!("not admitted: {other:?}"),
        }
    }

    /// Claims what waits in `default`, which must be something.
    pub async fn claimed(&self, token: &str) -> BatchId {
        match self.run(&claim(token)).await {
            ClaimOutcome::Claimed { batch, .. } => batch,
            other => panic!("not claimed: {other:?}"),
        }
    }

    /// The store of [`World::run`].
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// A further store: `world.store_with(|options| options.connections = 8)`.
    pub fn store_with(&self, change: impl FnOnce(&mut StoreOptions)) -> Store {
        let mut options = StoreOptions::new(&self.lease.url);
        change(&mut options);
        store_of(options)
    }

    /// A store that many tasks share: the last may wait for its connection, and a slow machine for its locks.
    pub fn store_patient(&self, connections: usize) -> Store {
        self.store_with(|options| {
            options.connections = connections;
            be_patient(options);
        })
    }

    /// A store whose sessions hold this probe.
    pub fn store_probed(&self, probe: std::sync::Arc<dyn shared::tx::Probe>) -> Store {
        self.store_with(|options| {
            options.connections = CONNECTIONS;
            options.probe = Some(probe);
        })
    }

    /// A store whose clock stands so many seconds from now: the future if positive.
    pub async fn store_in(&self, seconds: i64) -> Store {
        let clock = self.clock_in(seconds).await;
        self.store_with(|options| options.session = vec![clock])
    }

    /// The assignment that takes a session's clock there.
    pub async fn clock_in(&self, seconds: i64) -> String {
        let now: f64 = self.scalar("SELECT CAST(UNIX_TIMESTAMP(CURRENT_TIMESTAMP(6)) AS DOUBLE)", ()).await;
        format!("timestamp = {:.6}", now + seconds as f64)
    }

    /// A store behind a network that loses the next `times` COMMITs.
    pub async fn store_behind(&self, cut: Cut, times: u32) -> (Store, Proxy) {
        self.store_behind_with(cut, times, |_| {}).await
    }

    pub async fn store_behind_with(&self, cut: Cut, times: u32, change: impl FnOnce(&mut StoreOptions)) -> (Store, Proxy) {
        self.store_harmed(Moment::Commit, Harm::Cut(cut), times, change).await
    }

    /// A store behind a network in which the next `times` transactions that come to this moment meet this harm.
    pub async fn store_harmed(&self, moment: Moment, harm: Harm, times: u32, change: impl FnOnce(&mut StoreOptions)) -> (Store, Proxy) {
        let opts = Opts::from_url(&self.lease.url).expect("the URL of a lease");
        let proxy = Proxy::start(format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port()), moment, harm, times).await;
        let (scheme, address) = self.lease.url.split_once("://").expect("the URL of a lease");
        let (user, rest) = address.split_once('@').map_or((String::new(), address), |(user, rest)| (format!("{user}@"), rest));
        let (_, database) = rest.split_once('/').expect("the URL of a lease");
        let mut options = StoreOptions::new(format!("{scheme}://{user}127.0.0.1:{}/{database}", proxy.port));
        change(&mut options);
        (store_of(options), proxy)
    }

    /// The address of the database.
    pub fn url(&self) -> &str {
        &self.lease.url
    }

    /// Server-side numbers of all connections to this database.
    pub async fn connections(&self) -> Vec<u64> {
        self.rows("SELECT processlist_id FROM performance_schema.threads WHERE processlist_db = DATABASE()", ()).await
    }

    /// Returns once nobody is connected but these: what the others were in is committed or rolled back.
    pub async fn until_only(&self, connections: &[u64]) {
        until("the end of the other connections", async || {
            let others = self.connections().await.into_iter().any(|one| !connections.contains(&one));
            (!others).then_some(())
        })
        .await;
    }

    /// A raw session on the database, outside every rule.
    pub async fn session(&self) -> Conn {
        connect(&self.lease.url, false).await
    }

    pub async fn sql(&self, sql: &str, params: impl Into<Params> + Send) {
        if let Err(why) = self.sql.lock().await.exec_drop(sql, params.into()).await {
            panic!("{sql}: {why}");
        }
    }

    /// The error number of a statement that must be refused.
    pub async fn sql_refused(&self, sql: &str, params: impl Into<Params> + Send) -> (u16, String) {
        match self.sql.lock().await.exec_drop(sql, params.into()).await {
            Err(mysql_async::Error::Server(error)) => (error.code, error.message),
            other => panic!("{sql}: was not refused: {other:?}"),
        }
    }

    pub async fn rows<T: FromRow + Send + 'static>(&self, sql: &str, params: impl Into<Params> + Send) -> Vec<T> {
        match self.sql.lock().await.exec(sql, params.into()).await {
            Ok(rows) => rows,
            Err(why) => panic!("{sql}: {why}"),
        }
    }

    /// The first column of the first row.
    pub async fn scalar<T: mysql_async::prelude::FromValue + Send + 'static>(&self, sql: &str, params: impl Into<Params> + Send) -> T {
        let rows: Vec<Row> = self.rows(sql, params).await;
        let mut row = rows.into_iter().next().unwrap_or_else(|| panic!("{sql}: no row"));
        row.take(0).unwrap_or_else(|| panic!("{sql}: no column"))
    }

    pub async fn count(&self, table_and_condition: &str) -> u64 {
        self.scalar(&format!("SELECT COUNT(*) FROM {table_and_condition}"), ()).await
    }

    /// Ends a connection as an administrator or a failing network would, and waits until it is gone.
    pub async fn kill(&self, connection: u64) {
        self.sql(&format!("KILL {connection}"), ()).await;
        until("the end of a killed connection", async || {
            // Not the process list: it shows statements, and cannot show one that holds a token's bytes.
            let left = format!("performance_schema.threads WHERE processlist_id = {connection}");
            (self.count(&left).await == 0).then_some(())
        })
        .await;
    }
}

fn store_of(mut options: StoreOptions) -> Store {
    if let Some(mutant) = crate::mutated::chosen() {
        options.probe = Some(Mutated::around(options.probe.take(), mutant));
    }
    Store::new(options).expect("the URL of a lease is well-formed")
}

/// The limits of a test that must not be decided by time.
pub fn be_patient(options: &mut StoreOptions) {
    options.unit_limit = DEADLINE;
    options.session.push(format!("innodb_lock_wait_timeout = {}", DEADLINE.as_secs()));
}
