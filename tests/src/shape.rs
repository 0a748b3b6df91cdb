//! What a database holds but for what differs between two runs of one command: moments and AUTO_INCREMENT ids.

use std::fmt::Write as _;

use mysql_async::consts::ColumnType;
use mysql_async::{Row, Value};

use crate::world::World;

impl World {
    /// Every row as text, sorted, tables in order. Times are told as set or not, batches by their token, and a row's own
    /// number not at all. Two equal shapes: the same was done, once.
    pub async fn shape(&self) -> String {
        let tables = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
                      WHERE table_schema = DATABASE() AND table_name <> 'refinery_schema_history' AND table_type = 'BASE TABLE' ORDER BY 1";
        let tables: Vec<String> = self.rows(tables, ()).await;
        let batches: Vec<(u64, String)> = self.rows("SELECT id, HEX(claim_token) FROM merge_batch", ()).await;
        let mut text = String::new();
        for table in tables {
            let rows: Vec<Row> = self.rows(&format!("SELECT * FROM {table}"), ()).await;
            let mut lines: Vec<String> = rows.iter().map(|row| line(row, &batches)).collect();
            lines.sort();
            for line in lines {
                let _ = writeln!(text, "{table}{line}");
            }
        }
        text
    }
}

fn line(row: &Row, batches: &[(u64, String)]) -> String {
    let mut text = String::new();
    for (at, column) in row.columns_ref().iter().enumerate() {
        let (name, value) = (column.name_str(), row.as_ref(at).unwrap_or(&Value::NULL));
        let told = match (name.as_ref(), value) {
            ("id", _) => continue,
            (_, Value::NULL) => "NULL".to_owned(),
            (_, _) if matches!(column.column_type(), ColumnType::MYSQL_TYPE_DATETIME | ColumnType::MYSQL_TYPE_TIMESTAMP) => {
                "set".to_owned()
            }
            ("batch_id" | "suspect_of", number) => named(&number.as_sql(true), batches),
            ("payload" | "before_state" | "after_state", json) => {
                // Numbers of batches are the only numbers told as texts.
                batches.iter().fold(json.as_sql(true), |json, (id, token)| json.replace(&format!("\"{id}\""), token))
            }
            (_, other) => other.as_sql(true),
        };
        let _ = write!(text, " {name}={told}");
    }
    text
}

fn named(number: &str, batches: &[(u64, String)]) -> String {
    let number = number.trim_matches('\'');
    batches.iter().find(|(id, _)| id.to_string() == number).map_or_else(|| format!("an unknown batch {number}"), |(_, token)| token.clone())
}
