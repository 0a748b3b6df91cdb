//! The locks that a unit holds when all its statements have run, counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use shared::tx::{Point, Probe};

use crate::probes::Reached;

/// Looks at the record locks of the only unit of a database before it commits.
pub struct Held {
    session: tokio::sync::Mutex<Conn>,
    locks: Mutex<BTreeMap<String, u64>>,
}

impl Held {
    pub fn new(session: Conn) -> Arc<Self> {
        Arc::new(Self { session: tokio::sync::Mutex::new(session), locks: Mutex::default() })
    }

    /// How many record locks of each kind: `operation PRIMARY X,REC_NOT_GAP`.
    ///
    /// Rows that the unit inserted are locked by that alone, and are not among them until another asks.
    pub fn locks(&self) -> BTreeMap<String, u64> {
        self.locks.lock().expect("no holder panics").clone()
    }
}

impl Probe for Held {
    fn reached<'a>(&'a self, point: Point<'a>) -> Reached<'a> {
        Box::pin(async move {
            if matches!(point, Point::BeforeCommit { .. }) {
                let held = "SELECT CONCAT_WS(' ', object_name, index_name, lock_mode), COUNT(*) FROM performance_schema.data_locks \
                            WHERE object_schema = DATABASE() AND lock_type = 'RECORD' GROUP BY 1";
                let rows: Vec<(String, u64)> = self.session.lock().await.query(held).await.expect("the locks can be read");
                *self.locks.lock().expect("no holder panics") = rows.into_iter().collect();
            }
            Ok(())
        })
    }
}
