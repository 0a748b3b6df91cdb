//! Units stopped, failed or counted at a point of their course.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use shared::StoreError;
use shared::tx::{Point, Probe};
use tokio::sync::Semaphore;

use crate::deadline::within;

/// A point in the course of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Before statement n, counted from 1.
    Statement(u32),
    /// Before the statement that opens with this name, such as `claim.take_free_slot`.
    Named(&'static str),
    /// After the last statement.
    BeforeCommit,
    /// After COMMIT, before the answer.
    AfterCommit,
}

impl At {
    fn is(self, unit: &str, point: Point<'_>) -> bool {
        match (self, point) {
            (Self::Statement(wanted), Point::Statement { unit: here, n, .. }) => here == unit && n == wanted,
            (Self::Named(name), Point::Statement { unit: here, sql, .. }) => here == unit && name_of(sql) == name,
            (Self::BeforeCommit, Point::BeforeCommit { unit: here, .. }) | (Self::AfterCommit, Point::AfterCommit { unit: here, .. }) => {
                here == unit
            }
            _ => false,
        }
    }
}

pub(crate) fn name_of(sql: &str) -> &str {
    sql.trim_start().strip_prefix("/*").and_then(|rest| rest.split_once("*/")).map_or("", |(name, _)| name.trim())
}

pub(crate) type Reached<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Stops the first unit of a name that reaches a point, until it is released.
pub struct Pause {
    unit: &'static str,
    at: At,
    used: AtomicU32,
    standing: Semaphore,
    released: Semaphore,
}

impl Pause {
    pub fn new(unit: &'static str, at: At) -> Arc<Self> {
        Arc::new(Self { unit, at, used: AtomicU32::new(0), standing: Semaphore::new(0), released: Semaphore::new(0) })
    }

    /// Returns once the unit stands at the point.
    pub async fn reached(&self) {
        let what = format!("{} standing at {:?}", self.unit, self.at);
        within(&what, self.standing.acquire()).await.expect("the semaphore is never closed").forget();
    }

    pub fn release(&self) {
        self.released.add_permits(1);
    }

    /// How often the point was reached: more than once, if the unit was run again.
    pub fn met(&self) -> u32 {
        self.used.load(Ordering::SeqCst)
    }
}

impl Probe for Pause {
    fn reached<'a>(&'a self, point: Point<'a>) -> Reached<'a> {
        Box::pin(async move {
            if self.at.is(self.unit, point) && self.used.fetch_add(1, Ordering::SeqCst) == 0 {
                self.standing.add_permits(1);
                self.released.acquire().await.expect("the semaphore is never closed").forget();
            }
            Ok(())
        })
    }
}

/// Fails units at a point, so many times.
pub struct Fault {
    unit: &'static str,
    at: At,
    times: u32,
    met: AtomicU32,
    error: fn() -> StoreError,
}

impl Fault {
    pub fn new(unit: &'static str, at: At, times: u32, error: fn() -> StoreError) -> Arc<Self> {
        Arc::new(Self { unit, at, times, met: AtomicU32::new(0), error })
    }

    /// How often the point was reached, failed or not.
    pub fn met(&self) -> u32 {
        self.met.load(Ordering::SeqCst)
    }
}

impl Probe for Fault {
    fn reached<'a>(&'a self, point: Point<'a>) -> Reached<'a> {
        Box::pin(async move {
            if self.at.is(self.unit, point) && self.met.fetch_add(1, Ordering::SeqCst) < self.times {
                return Err((self.error)());
            }
            Ok(())
        })
    }
}

/// Changes rows behind a unit's back each time that it reaches a point.
pub struct Meddle {
    unit: &'static str,
    at: At,
    met: AtomicU32,
    session: tokio::sync::Mutex<Conn>,
    sql: &'static str,
}

impl Meddle {
    pub fn new(unit: &'static str, at: At, session: Conn, sql: &'static str) -> Arc<Self> {
        Arc::new(Self { unit, at, met: AtomicU32::new(0), session: tokio::sync::Mutex::new(session), sql })
    }

    /// How often it meddled.
    pub fn met(&self) -> u32 {
        self.met.load(Ordering::SeqCst)
    }
}

impl Probe for Meddle {
    fn reached<'a>(&'a self, point: Point<'a>) -> Reached<'a> {
        Box::pin(async move {
            if self.at.is(self.unit, point) {
                self.met.fetch_add(1, Ordering::SeqCst);
                self.session.lock().await.query_drop(self.sql).await.expect("the meddling statement runs");
            }
            Ok(())
        })
    }
}

/// Counts the statements of units, by name, and their COMMITs.
#[derive(Default)]
pub struct Count {
    statements: Mutex<BTreeMap<String, u32>>,
    commits: AtomicU32,
}

impl Count {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// All statements so far, reruns included.
    pub fn statements(&self) -> u32 {
        self.statements.lock().expect("no holder panics").values().sum()
    }

    /// How often the statement of this name ran.
    pub fn of(&self, name: &str) -> u32 {
        self.statements.lock().expect("no holder panics").get(name).copied().unwrap_or(0)
    }

    pub fn commits(&self) -> u32 {
        self.commits.load(Ordering::SeqCst)
    }
}

impl Probe for Count {
    fn reached<'a>(&'a self, point: Point<'a>) -> Reached<'a> {
        match point {
            Point::Statement { sql, .. } => {
                *self.statements.lock().expect("no holder panics").entry(name_of(sql).to_owned()).or_default() += 1;
            }
            Point::BeforeCommit { .. } => {}
            Point::AfterCommit { .. } => {
                self.commits.fetch_add(1, Ordering::SeqCst);
            }
        }
        Box::pin(async { Ok(()) })
    }
}

/// Looks at the locks that the only unit of a database holds, each time that it gets on.
pub struct Footprint {
    session: tokio::sync::Mutex<Conn>,
    seen: Mutex<Vec<Lock>>,
}

/// One kind of lock, as `performance_schema.data_locks` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub table: String,
    /// `None` for the table's own intention lock.
    pub index: Option<String>,
    pub mode: String,
}

impl Footprint {
    pub fn new(session: Conn) -> Arc<Self> {
        Arc::new(Self { session: tokio::sync::Mutex::new(session), seen: Mutex::default() })
    }

    /// The kinds of locks, in the order in which they were first seen.
    pub fn seen(&self) -> Vec<Lock> {
        self.seen.lock().expect("no holder panics").clone()
    }
}

impl Probe for Footprint {
    fn reached<'a>(&'a self, point: Point<'a>) -> Reached<'a> {
        Box::pin(async move {
            if matches!(point, Point::AfterCommit { .. }) {
                return Ok(());
            }
            let held = "SELECT object_name, index_name, lock_mode FROM performance_schema.data_locks WHERE object_schema = DATABASE() \
                        ORDER BY lock_type = 'RECORD', object_name, index_name, lock_mode";
            let rows: Vec<(String, Option<String>, String)> = self.session.lock().await.query(held).await.expect("the locks can be read");
            let mut seen = self.seen.lock().expect("no holder panics");
            for (table, index, mode) in rows {
                let lock = Lock { table, index, mode };
                if !seen.contains(&lock) {
                    seen.push(lock);
                }
            }
            Ok(())
        })
    }
}
