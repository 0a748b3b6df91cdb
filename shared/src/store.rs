//! Connections, plain reads, and the one runner of guarded transactions.

mod snapshot;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Opts, OptsBuilder, Params, Row};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::{Failure, StoreError, classify};
use crate::tx::{Decision, Guarded, Point, Probe, Tx};

/// One SET per connection: isolation without gap locks, one clock in UTC, locks waited for briefly,
/// and `wait_timeout` as the server's fuse for a holder that froze or vanished.
const SESSION: &str = concat!(
    "SET SESSION ",
    crate::isolation_variable!(),
    " = 'READ-COMMITTED', time_zone = '+00:00', innodb_lock_wait_timeout = 3, wait_timeout = 10, \
     sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,ONLY_FULL_GROUP_BY'"
);

/// Below the server's `wait_timeout`, with room for the checkout itself.
const IDLE_LIMIT: Duration = Duration::from_secs(8);
/// A unit that the database undid is run again at most this often.
const UNDONE_RERUNS: u32 = 5;
/// A unit that lost a race inside itself is run again at once, at most this often.
const RACE_RERUNS: u32 = 3;
/// A unit whose connection broke is run again on a fresh one at most this often.
const CONNECTION_RERUNS: u32 = 2;
/// First step of the back-off between reruns; doubled each time, with full jitter.
const BACK_OFF: Duration = Duration::from_millis(8);

/// How a [`Store`] connects and how long it waits.
#[derive(Clone)]
pub struct StoreOptions {
    /// `mysql://user:password@host:port/database`.
    pub url: String,
    /// Connections held at once: one for a sandbox that serves one request at a time.
    pub connections: usize,
    /// A whole unit, reruns included, ends within this or its connection is dropped.
    pub unit_limit: Duration,
    pub connect_limit: Duration,
    /// Further assignments for the session, such as `timestamp = 1800000000`, which moves its clock.
    pub session: Vec<String>,
    /// Watches units statement by statement: fault injection and interleaving in tests.
    pub probe: Option<Arc<dyn Probe>>,
}

impl StoreOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            connections: 1,
            unit_limit: Duration::from_secs(8),
            connect_limit: Duration::from_secs(3),
            session: Vec::new(),
            probe: None,
        }
    }
}

/// Handle on one MySQL writer. Connects at first use, so that a cold start does not wait for it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    opts: Opts,
    unit_limit: Duration,
    connect_limit: Duration,
    probe: Option<Arc<dyn Probe>>,
    permits: Semaphore,
    idle: Mutex<VecDeque<(Conn, Instant)>>,
}

/// A connection and the right to hold it. Dropped without `keep`, the connection closes, and with it
/// whatever transaction it was in: after a cancelled or failed call nothing on it can be trusted.
struct Held<'s> {
    conn: Conn,
    reused: bool,
    _permit: SemaphorePermit<'s>,
}

enum Attempt<T> {
    Decided(T),
    LostRace(T),
}

impl Store {
    /// # Errors
    /// A sentence naming what is wrong with the address; it never quotes the address, which holds a password.
    pub fn new(options: StoreOptions) -> Result<Self, String> {
        let opts = Opts::from_url(&options.url)
            .map_err(|why| format!("the database address is not of the form mysql://user:password@host:port/database ({why})"))?;
        let session = options.session.iter().fold(SESSION.to_owned(), |all, one| all + ", " + one);
        let opts = OptsBuilder::from_opts(opts)
            // After the handshake the driver would otherwise look for a socket file, maybe another server's.
            .prefer_socket(false)
            .client_found_rows(false)
            .stmt_cache_size(64)
            .setup(vec![session]);
        Ok(Self {
            inner: Arc::new(Inner {
                opts: opts.into(),
                unit_limit: options.unit_limit,
                connect_limit: options.connect_limit,
                probe: options.probe,
                permits: Semaphore::new(options.connections.max(1)),
                idle: Mutex::new(VecDeque::new()),
            }),
        })
    }

    /// Runs one unit to its outcome: BEGIN, its statements, COMMIT or an awaited ROLLBACK, and the
    /// reruns that [`StoreError`] describes. Only a committed or refused outcome is answered.
    pub async fn run<G: Guarded>(&self, unit: &G) -> Result<G::Outcome, StoreError> {
        let started = Instant::now();
        let limit = self.inner.unit_limit;
        let (result, attempts) = match tokio::time::timeout(limit, Box::pin(self.run_to_outcome(unit))).await {
            Ok(answer) => answer,
            Err(_) => (Err(StoreError::TimeLimit { unit: G::NAME, limit_ms: limit.as_millis() as u64 }), 1),
        };
        let elapsed_ms = started.elapsed().as_millis() as u64;
        match &result {
            Ok(outcome) => {
                tracing::info!(event = "outcome", unit = G::NAME, outcome = G::outcome_name(outcome), attempts, elapsed_ms);
            }
            Err(error) if error.is_fault() => tracing::warn!(event = "fault", unit = G::NAME, attempts, elapsed_ms, %error),
            Err(error) => {
                tracing::error!(event = "corruption", unit = G::NAME, attempts, elapsed_ms, %error, cause = ?std::error::Error::source(error))
            }
        }
        result
    }

    async fn run_to_outcome<G: Guarded>(&self, unit: &G) -> (Result<G::Outcome, StoreError>, u32) {
        let (mut undone, mut races, mut breaks) = (0, 0, 0);
        // Once a COMMIT went unanswered, the unit must look for its own traces before it judges.
        let mut resumed = false;
        loop {
            let attempts = undone + races + breaks + 1;
            let error = match self.attempt(unit, resumed).await {
                Ok(Attempt::Decided(outcome)) => return (Ok(outcome), attempts),
                Ok(Attempt::LostRace(outcome)) if races >= RACE_RERUNS => return (Ok(outcome), attempts),
                Ok(Attempt::LostRace(_)) => {
                    races += 1;
                    continue;
                }
                Err(error) => error,
            };
            match &error {
                StoreError::Undone { .. } if undone < UNDONE_RERUNS => undone += 1,
                StoreError::Unreachable(_) if breaks < CONNECTION_RERUNS => breaks += 1,
                StoreError::CommitUnknown(_) if breaks < CONNECTION_RERUNS => {
                    breaks += 1;
                    resumed = true;
                }
                _ => return (Err(error), attempts),
            }
            back_off(undone + breaks).await;
        }
    }

    async fn attempt<G: Guarded>(&self, unit: &G, resumed: bool) -> Result<Attempt<G::Outcome>, StoreError> {
        let mut held = self.begin().await?;
        let mut tx = Tx::new(&mut held.conn, G::NAME, resumed, self.inner.probe.as_deref());
        let decision = unit.apply(&mut tx).await;
        let usable = tx.is_usable();
        match decision {
            Ok(Decision::Commit(_)) if !usable => {
                Err(StoreError::corrupt(format!("the unit {} wanted to commit after a failed statement", G::NAME)))
            }
            Ok(Decision::Commit(outcome)) => {
                let statements = tx.statements();
                self.pause_at(Point::BeforeCommit { unit: G::NAME, statements }).await?;
                held.conn.query_drop("COMMIT").await.map_err(|error| match classify(&error) {
                    Failure::Undone(code) => StoreError::Undone { code },
                    Failure::Connection => StoreError::CommitUnknown(error),
                    _ => StoreError::Refused { unit: G::NAME, statement: "COMMIT".to_owned(), source: error },
                })?;
                self.keep(held);
                self.pause_at(Point::AfterCommit { unit: G::NAME, statements }).await?;
                Ok(Attempt::Decided(outcome))
            }
            Ok(Decision::Refuse(outcome)) => {
                self.roll_back(held).await;
                Ok(Attempt::Decided(outcome))
            }
            Ok(Decision::Rerun(outcome)) => {
                self.roll_back(held).await;
                Ok(Attempt::LostRace(outcome))
            }
            Err(error) => {
                // A broken connection is dropped here; any other is rolled back before it is used again.
                if !matches!(error, StoreError::Unreachable(_)) {
                    self.roll_back(held).await;
                }
                Err(error)
            }
        }
    }

    async fn pause_at(&self, point: Point<'_>) -> Result<(), StoreError> {
        match &self.inner.probe {
            Some(probe) => probe.reached(point).await,
            None => Ok(()),
        }
    }

    /// BEGIN is harmless to repeat, so a connection that died while idle is found and replaced here.
    async fn begin(&self) -> Result<Held<'_>, StoreError> {
        let mut held = self.checkout().await?;
        if let Err(error) = held.conn.query_drop("START TRANSACTION").await {
            if !held.reused {
                return Err(StoreError::Unreachable(error));
            }
            drop(held);
            held = self.connect().await?;
            held.conn.query_drop("START TRANSACTION").await.map_err(StoreError::Unreachable)?;
        }
        Ok(held)
    }

    /// An awaited ROLLBACK on every path: a merely dropped transaction keeps its locks while the process is frozen.
    async fn roll_back(&self, mut held: Held<'_>) {
        if held.conn.query_drop("ROLLBACK").await.is_ok() {
            self.keep(held);
        }
    }

    fn keep(&self, held: Held<'_>) {
        let mut idle = self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push_back((held.conn, Instant::now()));
    }

    async fn permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        self.inner.permits.acquire().await.map_err(|_| StoreError::corrupt("the store was closed while in use"))
    }

    async fn checkout(&self) -> Result<Held<'_>, StoreError> {
        let permit = self.permit().await?;
        let fresh_enough = {
            let mut idle = self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|(_, since)| since.elapsed() < IDLE_LIMIT);
            idle.pop_back()
        };
        match fresh_enough {
            Some((conn, _)) => Ok(Held { conn, reused: true, _permit: permit }),
            None => self.connect_with(permit).await,
        }
    }

    async fn connect(&self) -> Result<Held<'_>, StoreError> {
        let permit = self.permit().await?;
        self.connect_with(permit).await
    }

    async fn connect_with<'s>(&'s self, permit: SemaphorePermit<'s>) -> Result<Held<'s>, StoreError> {
        let connecting = Conn::new(self.inner.opts.clone());
        let conn = match tokio::time::timeout(self.inner.connect_limit, connecting).await {
            Ok(conn) => conn.map_err(StoreError::Unreachable)?,
            Err(_) => {
                let what = format!("no connection within {} ms", self.inner.connect_limit.as_millis());
                return Err(StoreError::Unreachable(std::io::Error::new(std::io::ErrorKind::TimedOut, what).into()));
            }
        };
        Ok(Held { conn, reused: false, _permit: permit })
    }

    /// One plain SELECT on autocommit, without locks; asked once more where the connection had died.
    pub async fn rows<T: FromRow + Send + 'static>(&self, sql: &'static str, params: impl Into<Params>) -> Result<Vec<T>, StoreError> {
        let params = params.into();
        let sql = self.inner.probe.as_ref().map_or(sql, |probe| probe.text(sql));
        let reading = async {
            let mut held = self.checkout().await?;
            let mut answer = held.conn.exec::<Row, _, _>(sql, params.clone()).await;
            if answer.as_ref().is_err_and(|error| held.reused && classify(error) == Failure::Connection) {
                drop(held);
                held = self.connect().await?;
                answer = held.conn.exec(sql, params).await;
            }
            match answer {
                Ok(rows) => {
                    self.keep(held);
                    crate::tx::typed(sql, rows)
                }
                Err(error) => Err(crate::tx::statement_error("read", sql, error)),
            }
        };
        let limit = self.inner.unit_limit;
        let timed_out = |_| Err(StoreError::TimeLimit { unit: "read", limit_ms: limit.as_millis() as u64 });
        tokio::time::timeout(limit, reading).await.unwrap_or_else(timed_out)
    }

    pub async fn first<T: FromRow + Send + 'static>(&self, sql: &'static str, params: impl Into<Params>) -> Result<Option<T>, StoreError> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }
}

async fn back_off(step: u32) {
    let ceiling = BACK_OFF * 2_u32.saturating_pow(step.min(5));
    tokio::time::sleep(ceiling.mul_f64(rand::random::<f64>())).await;
}
