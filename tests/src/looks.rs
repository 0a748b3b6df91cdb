//! What a test looks at in its world: all rows, the effects of a batch, the invariants; and how it comes back to a state.

use std::fmt::Write as _;

use mysql_async::prelude::Queryable;
use mysql_async::{Row, Value};
use shared::audit::INVARIANTS;
use shared::ids::BatchId;

use crate::world::World;

/// A state to come back to.
pub struct Saved {
    script: String,
}

impl World {
    /// Kinds and causing versions of the outbox rows, in the order of their keys: `arm_merge 2`.
    pub async fn effects_of(&self, batch: BatchId) -> Vec<String> {
        let sql = "SELECT CONCAT(IF(kind = 'publish', JSON_UNQUOTE(JSON_EXTRACT(payload, '$.type')), kind), ' ', \
                   SUBSTRING_INDEX(dedup_key, ':', -1)) FROM outbox WHERE batch_id = ? AND operation_id IS NULL ORDER BY 1";
        self.rows::<(String,)>(sql, (batch.0,)).await.into_iter().map(|(text,)| text).collect()
    }

    /// Every row of every table, as text in the order of the primary keys. Two equal snapshots: nothing changed.
    pub async fn snapshot(&self) -> String {
        const TABLES: &str = "SELECT t.table_name AS t, GROUP_CONCAT(k.column_name ORDER BY k.ordinal_position) AS k \
             FROM information_schema.tables t JOIN information_schema.key_column_usage k \
               ON k.table_schema = t.table_schema AND k.table_name = t.table_name AND k.constraint_name = 'PRIMARY' \
             WHERE t.table_schema = DATABASE() GROUP BY t.table_name ORDER BY t.table_name";
        let tables: Vec<(String, String)> = self.rows(TABLES, ()).await;
        let mut conn = self.sql.lock().await;
        conn.query_drop("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.expect("the isolation can be chosen");
        conn.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await.expect("a snapshot can be begun");
        let mut text = String::new();
        for (table, keys) in tables {
            let rows: Vec<Row> = conn.query(format!("SELECT * FROM {table} ORDER BY {keys}")).await.expect("a table can be read");
            for row in rows {
                text.push_str(&table);
                for (at, column) in row.columns_ref().iter().enumerate() {
                    let value = row.as_ref(at).map_or_else(String::new, |value: &Value| value.as_sql(true));
                    let _ = write!(text, " {}={value}", column.name_str());
                }
                text.push('\n');
            }
        }
        conn.query_drop("ROLLBACK").await.expect("a snapshot can be ended");
        text
    }

    /// The SQL of the invariants finds nothing.
    ///
    /// # Panics
    /// Naming each invariant that is broken, and by which rows.
    pub async fn assert_invariants(&self) {
        let broken = self.breaches().await;
        assert!(broken.is_empty(), "invariants are broken:\n{}\n{}", broken.join("\n"), self.snapshot().await);
    }

    /// Each invariant that is broken, and by which rows.
    pub async fn breaches(&self) -> Vec<String> {
        // One round trip: tests look after every step.
        let all: Vec<&str> = INVARIANTS.iter().map(|one| one.sql).collect();
        let mut broken = Vec::new();
        let mut conn = self.sql.lock().await;
        let mut results = conn.query_iter(all.join(";")).await.expect("the invariants are right SQL");
        for invariant in INVARIANTS {
            let rows: Vec<String> = results.collect().await.unwrap_or_else(|why| panic!("{}: {why}", invariant.sql));
            if !rows.is_empty() {
                broken.push(format!("{}: {}: {rows:?}", invariant.id, invariant.sentence));
            }
        }
        broken
    }

    /// Keeps every row as it is now, for [`Self::restore`].
    pub async fn save(&self) -> Saved {
        let mut script = "START TRANSACTION".to_owned();
        for (table, columns) in self.tables().await {
            self.sql(&format!("CREATE TEMPORARY TABLE saved_{table} SELECT * FROM {table}"), ()).await;
            let _ = write!(script, ";DELETE FROM {table};INSERT INTO {table} ({columns}) SELECT {columns} FROM saved_{table}");
        }
        Saved { script: script + ";COMMIT" }
    }

    /// Brings every row back to what it was: one transaction instead of the many that made it.
    pub async fn restore(&self, saved: &Saved) {
        self.sql.lock().await.query_drop(&saved.script).await.expect("what was saved fits the tables");
    }

    /// Every table of ours, with the columns that are not generated.
    async fn tables(&self) -> Vec<(String, String)> {
        let sql = "SELECT CONCAT(table_name), GROUP_CONCAT(column_name ORDER BY ordinal_position) FROM information_schema.columns \
                   WHERE table_schema = DATABASE() AND table_name <> 'refinery_schema_history' AND COALESCE(generation_expression, '') = '' GROUP BY table_name";
        self.rows(sql, ()).await
    }
}
