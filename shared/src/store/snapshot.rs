//! Several plain reads that all see one moment.

use std::time::Duration;

use mysql_async::Row;
use mysql_async::prelude::{FromRow, Queryable};

use super::Store;
use crate::error::StoreError;

/// For the next transaction alone.
const SNAPSHOT_ISOLATION: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ";
const BEGIN_SNAPSHOT: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

impl Store {
    /// Plain SELECTs that all see the database as it was at one moment; one list of rows for each, in their order.
    /// The snapshot ends within `limit`, for it keeps the server from forgetting what was changed meanwhile.
    pub async fn snapshot<T: FromRow + Send + 'static>(&self, statements: &[String], limit: Duration) -> Result<Vec<Vec<T>>, StoreError> {
        let reading = async {
            let mut held = self.checkout().await?;
            // Harmless to repeat, so a connection that died while idle is found and replaced here.
            if held.conn.query_drop(SNAPSHOT_ISOLATION).await.is_err() && held.reused {
                drop(held);
                held = self.connect().await?;
                held.conn.query_drop(SNAPSHOT_ISOLATION).await.map_err(StoreError::Unreachable)?;
            }
            held.conn.query_drop(BEGIN_SNAPSHOT).await.map_err(StoreError::Unreachable)?;
            let mut answers = Vec::with_capacity(statements.len());
            for sql in statements {
                match held.conn.query::<Row, _>(sql).await {
                    Ok(rows) => answers.push(crate::tx::typed(sql, rows)?),
                    Err(error) => return Err(crate::tx::statement_error("snapshot", sql, error)),
                }
            }
            self.roll_back(held).await;
            Ok(answers)
        };
        let timed_out = |_| Err(StoreError::TimeLimit { unit: "snapshot", limit_ms: limit.as_millis() as u64 });
        tokio::time::timeout(limit, reading).await.unwrap_or_else(timed_out)
    }
}
