//! The tables as the migrations make them, read from the migrations' own text.

/// Every migration, in order; a test compares their number with the folder.
pub const MIGRATIONS: &[&str] = &[include_str!("../../../../migrations/V1__the_guarded_tables.sql")];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub table: &'static str,
    /// `PRIMARY` for the primary key.
    pub name: &'static str,
    pub columns: Vec<&'static str>,
    pub unique: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub table: &'static str,
    pub name: &'static str,
    /// As written: `VARCHAR(64)`, `BIGINT UNSIGNED`.
    pub kind: String,
    pub collation: Option<&'static str>,
}

#[derive(Debug, Default)]
pub struct Blueprint {
    pub tables: Vec<&'static str>,
    pub keys: Vec<Key>,
    pub columns: Vec<Column>,
    /// Table and name.
    pub checks: Vec<(&'static str, &'static str)>,
}

impl Blueprint {
    pub fn read() -> Self {
        let mut all = Self::default();
        let mut table = None;
        for line in MIGRATIONS.iter().flat_map(|text| text.lines()).map(str::trim) {
            if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
                let name = rest.trim_end_matches('(').trim();
                all.tables.push(name);
                table = Some(name);
            } else if line.starts_with(')') || line.starts_with("--") {
                table = table.filter(|_| !line.starts_with(')'));
            } else if let Some(table) = table {
                all.add(table, line);
            }
        }
        all
    }

    fn add(&mut self, table: &'static str, line: &'static str) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("PRIMARY"), Some("KEY")) => self.add_key(table, "PRIMARY", line, true),
            (Some("UNIQUE"), Some("KEY")) => self.add_key(table, words.next().unwrap_or_default(), line, true),
            (Some("KEY"), Some(name)) => self.add_key(table, name, line, false),
            (Some("CONSTRAINT"), Some(name)) => self.checks.push((table, name)),
            (Some(name), Some(kind)) => {
                let unsigned = words.next() == Some("UNSIGNED");
                let kind = if unsigned { format!("{kind} UNSIGNED") } else { kind.to_owned() };
                let collation = line.split_once("COLLATE ").and_then(|(_, rest)| rest.split_whitespace().next());
                self.columns.push(Column { table, name, kind, collation });
            }
            _ => {}
        }
    }

    fn add_key(&mut self, table: &'static str, name: &'static str, line: &'static str, unique: bool) {
        let inside = line.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(inside, _)| inside);
        self.keys.push(Key { table, name, columns: inside.split(',').map(str::trim).collect(), unique });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_migration_is_known() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations");
        let files =
            std::fs::read_dir(folder).unwrap().filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|is| is == "sql"));
        assert_eq!(files.count(), MIGRATIONS.len(), "add the new migration to MIGRATIONS");
    }

    #[test]
    fn what_the_slot_stands_on_is_read() {
        let all = Blueprint::read();
        let slot = all.keys.iter().find(|key| key.name == "uk_active_slot").unwrap();
        assert_eq!((slot.table, &slot.columns[..], slot.unique), ("merge_batch", &["partition_key", "active_slot"][..], true));
        assert!(all.checks.contains(&("merge_batch", "ck_batch_status")));
        let token = all.columns.iter().find(|column| column.name == "claim_token").unwrap();
        assert_eq!((token.table, token.kind.as_str(), token.collation), ("merge_batch", "BINARY(16)", None));
        let target = all.columns.iter().find(|column| column.table == "target" && column.name == "target_key").unwrap();
        assert_eq!((target.kind.as_str(), target.collation), ("VARCHAR(128)", Some("ascii_bin")));
        assert_eq!(all.tables.len(), 13);
        let of_each = |table: &&str| all.keys.iter().any(|key| key.table == *table && key.name == "PRIMARY");
        assert!(all.tables.iter().all(of_each));
    }
}
