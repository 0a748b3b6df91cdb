//! The live tables against those that the migrations make.

use std::collections::BTreeMap;

use super::Check;
use super::blueprint::{Blueprint, Column, Key, MIGRATIONS};
use crate::error::StoreError;
use crate::store::Store;

const READ_TABLES: &str = "/* doctor.read_tables */ \
    SELECT CAST(table_name AS CHAR), CAST(COALESCE(engine, '') AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()";

const READ_COLUMNS: &str = "/* doctor.read_columns */ \
    SELECT CAST(table_name AS CHAR), CAST(column_name AS CHAR), LOWER(CAST(column_type AS CHAR)), CAST(collation_name AS CHAR), \
           CAST(COALESCE(generation_expression, '') AS CHAR), CAST(extra AS CHAR) \
    FROM information_schema.columns WHERE table_schema = DATABASE()";

const READ_KEYS: &str = "/* doctor.read_keys */ \
    SELECT CAST(table_name AS CHAR), CAST(index_name AS CHAR), CAST(MIN(non_unique) AS SIGNED), \
           CAST(GROUP_CONCAT(column_name, IF(sub_part IS NULL, '', ' prefix') ORDER BY seq_in_index SEPARATOR ',') AS CHAR) \
    FROM information_schema.statistics WHERE table_schema = DATABASE() GROUP BY table_name, index_name";

const READ_INVISIBLE_KEYS: &str = concat!(
    "/* doctor.read_invisible_keys */ \
    SELECT DISTINCT CAST(table_name AS CHAR), CAST(index_name AS CHAR) FROM information_schema.statistics \
    WHERE table_schema = DATABASE() AND ",
    crate::key_is_invisible!()
);

const READ_CHECKS: &str = "/* doctor.read_checks */ \
    SELECT CAST(table_name AS CHAR), CAST(constraint_name AS CHAR) FROM information_schema.table_constraints \
    WHERE constraint_schema = DATABASE() AND constraint_type = 'CHECK'";

const READ_UNENFORCED_CHECKS: &str = concat!(
    "/* doctor.read_unenforced_checks */ \
    SELECT CAST(table_name AS CHAR), CAST(constraint_name AS CHAR) FROM information_schema.table_constraints \
    WHERE constraint_schema = DATABASE() AND constraint_type = 'CHECK' AND ",
    crate::check_is_not_enforced!()
);

const COUNT_FOREIGN_KEYS: &str = "/* doctor.list_foreign_keys */ \
    SELECT CAST(table_name AS CHAR), CAST(constraint_name AS CHAR) FROM information_schema.table_constraints \
    WHERE constraint_schema = DATABASE() AND constraint_type = 'FOREIGN KEY'";

const LIST_TRIGGERS: &str = "/* doctor.list_triggers */ \
    SELECT CAST(event_object_table AS CHAR), CAST(trigger_name AS CHAR) FROM information_schema.triggers WHERE trigger_schema = DATABASE()";

const READ_SCHEMA_VERSION: &str = "/* doctor.read_schema_version */ SELECT CAST(MAX(version) AS SIGNED) FROM refinery_schema_history";

const HISTORY_TABLE: &str = "refinery_schema_history";

/// Without blanks, quotes and brackets, which the servers set each in their own way.
const SLOT: &str = "casewhenstatusin1,4then1end";

const MIGRATE: &str = "bring the schema back to what the migrations make it, with Muster's own SQL, before rounds go on";

type ColumnRow = (String, String, String, Option<String>, String, String);

pub async fn examine(store: &Store) -> Result<Vec<Check>, StoreError> {
    let expected = Blueprint::read();
    let tables: BTreeMap<String, String> = store.rows::<(String, String)>(READ_TABLES, ()).await?.into_iter().collect();
    let columns: Vec<ColumnRow> = store.rows(READ_COLUMNS, ()).await?;
    let keys: Vec<(String, String, i64, String)> = store.rows(READ_KEYS, ()).await?;
    let checks: Vec<(String, String)> = store.rows(READ_CHECKS, ()).await?;
    let invisible: Vec<(String, String)> = store.rows(READ_INVISIBLE_KEYS, ()).await?;
    let unenforced: Vec<(String, String)> = store.rows(READ_UNENFORCED_CHECKS, ()).await?;
    let version = match tables.contains_key(HISTORY_TABLE) {
        true => store.first::<(Option<i64>,)>(READ_SCHEMA_VERSION, ()).await?.and_then(|(version,)| version),
        false => None,
    };
    let mut all = vec![judge_version(version)];
    all.extend(Check::all("schema.tables", wrong_tables(&expected, &tables), MIGRATE));
    all.extend(Check::all("schema.columns", wrong_columns(&expected, &columns), MIGRATE));
    all.push(judge_slot(&columns));
    all.extend(Check::all("schema.keys", wrong_keys(&expected, &keys, &invisible), MIGRATE));
    all.extend(Check::all("schema.checks", wrong_checks(&expected, &checks, &unenforced), MIGRATE));
    let strange = |kind: &str, rows: Vec<(String, String)>, means: &str| -> Vec<String> {
        rows.into_iter().map(|(table, name)| format!("{table} has the {kind} {name}, {means}")).collect()
    };
    let foreign = strange(
        "foreign key",
        store.rows(COUNT_FOREIGN_KEYS, ()).await?,
        "whose check locks its parent and deadlocks rounds with admissions",
    );
    all.extend(Check::all("schema.foreign_keys", foreign, "drop it: the audit finds orphans instead"));
    let triggers = strange("trigger", store.rows(LIST_TRIGGERS, ()).await?, "which writes behind the guards");
    all.extend(Check::all("schema.triggers", triggers, "drop it, and read the events queue instead"));
    Ok(all)
}

fn judge_version(found: Option<i64>) -> Check {
    let expected = MIGRATIONS.len() as i64;
    let problem = match found {
        Some(version) if version == expected => return Check::passed("schema.version"),
        Some(version) => format!("the schema is at version {version}, and this Muster is written for {expected}"),
        None => format!("the database was never migrated, and this Muster is written for schema version {expected}"),
    };
    Check::failed("schema.version", problem, "run the migrations of the Muster that is deployed, or deploy the Muster of the schema")
}

fn wrong_tables(expected: &Blueprint, found: &BTreeMap<String, String>) -> Vec<String> {
    let problem = |table: &&'static str| match found.get(*table).map(String::as_str) {
        None => Some(format!("the table {table} is missing")),
        Some("InnoDB") => None,
        Some(engine) => {
            Some(format!("the table {table} is kept by {engine}, which has no transactions or no row locks, and not by InnoDB"))
        }
    };
    expected.tables.iter().filter_map(problem).collect()
}

fn wrong_columns(expected: &Blueprint, found: &[ColumnRow]) -> Vec<String> {
    let problem = |want: &Column| {
        let at = format!("{}.{}", want.table, want.name);
        let Some((.., kind, collation, _, _)) = found.iter().find(|(table, name, ..)| table == want.table && name == want.name) else {
            return Some(format!("the column {at} is missing"));
        };
        if !is_kind(kind, &want.kind) {
            return Some(format!(
                "the column {at} is {kind} and not {}, so it may cut or round what is compared",
                want.kind.to_lowercase()
            ));
        }
        let collation = collation.as_deref();
        (want.collation.is_some() && collation != want.collation).then(|| {
            let (has, wants) = (collation.unwrap_or("none"), want.collation.unwrap_or_default());
            format!("the column {at} has the collation {has} and not {wants}, so two different ids may count as one")
        })
    };
    expected.columns.iter().filter_map(problem).collect()
}

/// Widths of integers mean nothing, and MariaDB keeps JSON as a long text.
fn is_kind(found: &str, wanted: &str) -> bool {
    let wanted = wanted.to_lowercase();
    if wanted == "json" {
        return matches!(found, "json" | "longtext");
    }
    if wanted.contains("int") {
        let mut words = found.split_whitespace();
        let base = words.next().and_then(|word| word.split('(').next()).unwrap_or_default();
        let unsigned = if words.next() == Some("unsigned") { " unsigned" } else { "" };
        return format!("{base}{unsigned}") == wanted;
    }
    found == wanted
}

fn judge_slot(columns: &[ColumnRow]) -> Check {
    let slot = columns.iter().find(|(table, name, ..)| table == "merge_batch" && name == "active_slot");
    let bare = |text: &str| text.to_lowercase().chars().filter(|c| !c.is_whitespace() && !matches!(c, '`' | '(' | ')')).collect::<String>();
    let problem = match slot {
        None => "the column merge_batch.active_slot is missing".to_owned(),
        Some((.., text, _)) if bare(text) != SLOT => {
            format!("merge_batch.active_slot is generated by {text:?}, which is not the slot of RUNNING and BLOCKED batches")
        }
        Some((.., extra)) if !extra.to_uppercase().contains("STORED") => "merge_batch.active_slot is not stored".to_owned(),
        Some(_) => return Check::passed("schema.slot"),
    };
    Check::failed("schema.slot", format!("{problem}: two batches of one partition may be active at once"), MIGRATE)
}

fn wrong_keys(expected: &Blueprint, found: &[(String, String, i64, String)], invisible: &[(String, String)]) -> Vec<String> {
    let problem = |want: &Key| {
        let at = format!("{}.{}", want.table, want.name);
        let what = if want.unique { "unique key" } else { "key" };
        let Some((.., non_unique, columns)) = found.iter().find(|(table, name, ..)| table == want.table && name == want.name) else {
            let means = if want.unique { "what it refused is not refused any more" } else { "statements that name it fail" };
            return Some(format!("the {what} {at} is missing: {means}"));
        };
        if want.unique && *non_unique != 0 {
            return Some(format!("the key {at} is not unique any more: what it refused is not refused any more"));
        }
        let wanted = want.columns.join(",");
        if *columns != wanted {
            return Some(format!("the {what} {at} is over ({columns}) and not over ({wanted})"));
        }
        let is_invisible = invisible.iter().any(|(table, name)| table == want.table && name == want.name);
        is_invisible.then(|| format!("the {what} {at} is invisible, so statements that name it fail"))
    };
    expected.keys.iter().filter_map(problem).collect()
}

fn wrong_checks(expected: &Blueprint, found: &[(String, String)], unenforced: &[(String, String)]) -> Vec<String> {
    let has = |rows: &[(String, String)], table: &str, name: &str| rows.iter().any(|(t, n)| t == table && n == name);
    let problem = |(table, name): &(&'static str, &'static str)| {
        if !has(found, table, name) {
            return Some(format!("the CHECK {table}.{name} is missing, so a row may hold what no code expects"));
        }
        has(unenforced, table, name).then(|| format!("the CHECK {table}.{name} is not enforced, so a row may hold what no code expects"))
    };
    expected.checks.iter().filter_map(problem).collect()
}
