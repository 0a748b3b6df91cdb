//! Removes what nobody needs any more, a bounded number of rows at a time.
//!
//! Rows are found by plain reads and deleted through their primary keys. What makes a row removable never
//! turns back, so a row found is a row that may go; two purges at once remove each row once.
//! Locks, in house order: waiting rows, contents, paths, outbox, idempotency records.
//! Histories, audit, members, operations and batches stay for ever.

use serde_json::json;

use crate::error::StoreError;
use crate::ids::OperationId;
use crate::tx::{Decision, Guarded, Tx, commit, refuse};

/// Rows of one kind in one unit; a unit removes at most 500 rows, and more only for one request with many files.
const DATED_MAX: u32 = 150;
const CONTENT_ROWS_MAX: u64 = 200;
/// Contents that one unit looks at: those of living relationships are looked at again and again.
const WINDOW: u32 = 2_000;

/// Removes a bounded part of all that may go. Run it until [`Purged::total`] is 0.
///
/// Where more contents are kept than one unit looks at, each looks at another part of them.
#[derive(Debug, Clone, Copy)]
pub struct Purge;

/// Idempotency records and outbox rows whose time is over.
#[derive(Debug, Clone, Copy)]
pub struct PurgeDated {
    pub dry_run: bool,
}

/// Contents, paths and waiting rows of ended requests, in the order of their ids.
#[derive(Debug, Clone)]
pub struct PurgeContents {
    /// Where an earlier unit stopped: its [`Purged::next`].
    pub after: Option<OperationId>,
    pub dry_run: bool,
}

/// Rows removed, by kind.
#[must_use]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purged {
    pub idempotency: u64,
    pub outbox: u64,
    pub contents: u64,
    pub paths: u64,
    pub waiting_rows: u64,
    /// Where [`PurgeContents`] goes on; `None`: it has seen all.
    pub next: Option<OperationId>,
}

impl Purged {
    pub fn total(&self) -> u64 {
        self.idempotency + self.outbox + self.contents + self.paths + self.waiting_rows
    }

    pub fn add(&mut self, other: &Self) {
        self.idempotency += other.idempotency;
        self.outbox += other.outbox;
        self.contents += other.contents;
        self.paths += other.paths;
        self.waiting_rows += other.waiting_rows;
        self.next.clone_from(&other.next);
    }
}

/// FAILED counts as not ended: it may be recovered, and its key must still tell.
const FIND_EXPIRED_KEYS: &str = "/* purge.find_expired_keys */ \
    SELECT i.principal, i.request_key FROM idempotency_record i FORCE INDEX (idx_expires) \
    STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.operation_id = i.operation_id \
    WHERE i.expires_at <= CURRENT_TIMESTAMP(6) AND o.status IN (3, 4, 6, 7) ORDER BY i.expires_at LIMIT ?";

const DELETE_EXPIRED_KEYS: &str = "/* purge.delete_expired_keys */ \
    DELETE i FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        principal VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin PATH '$.p', \
        request_key VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin PATH '$.k')) AS j \
    STRAIGHT_JOIN idempotency_record i FORCE INDEX (PRIMARY) ON i.principal = j.principal AND i.request_key = j.request_key \
    WHERE i.expires_at <= CURRENT_TIMESTAMP(6)";

const FIND_OLD_DELIVERIES: &str = "/* purge.find_old_deliveries */ \
    SELECT dedup_key FROM outbox FORCE INDEX (idx_due) \
    WHERE delivered_at < CURRENT_TIMESTAMP(6) - INTERVAL 7 DAY ORDER BY delivered_at LIMIT ?";

const DELETE_OLD_DELIVERIES: &str = "/* purge.delete_old_deliveries */ \
    DELETE x FROM JSON_TABLE(?, '$[*]' COLUMNS (dedup_key VARCHAR(191) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
    STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.dedup_key = j.dedup_key \
    WHERE x.delivered_at < CURRENT_TIMESTAMP(6) - INTERVAL 7 DAY";

/// MERGED: its relationship is over, or rests on another operation by now. Other ends: 30 days old.
/// Nothing goes while an effect of its batch is still to be performed: the forge may be asked about its files.
const FIND_ENDED_CONTENTS: &str = "/* purge.find_ended_contents */ \
    SELECT c.operation_id, r.id, (SELECT COUNT(*) FROM request_path p WHERE p.operation_id = c.operation_id) \
    FROM (SELECT operation_id FROM operation_content WHERE operation_id > ? ORDER BY operation_id LIMIT ?) AS c \
    STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.operation_id = c.operation_id \
    STRAIGHT_JOIN binding b FORCE INDEX (PRIMARY) ON b.subject_id = o.subject_id AND b.target_key = o.target_key \
    LEFT JOIN merge_batch_request r FORCE INDEX (uk_operation_id) ON r.operation_id = c.operation_id \
    WHERE ((o.status = 3 AND (b.status IN (4, 6) \
                OR (b.operation_id <> o.operation_id AND NOT b.granted_by_operation_id <=> o.operation_id))) \
           OR (o.status IN (4, 6, 7) AND o.settled_at < CURRENT_TIMESTAMP(6) - INTERVAL 30 DAY)) \
      AND (SELECT COUNT(*) FROM outbox x FORCE INDEX (idx_batch) WHERE x.batch_id = o.batch_id \
           AND x.delivered_at IS NULL AND x.given_up_at IS NULL AND x.kind <> 'publish') = 0 \
    ORDER BY c.operation_id LIMIT ?";

const READ_WINDOW: &str = "/* purge.read_window */ \
    SELECT COUNT(*), MAX(operation_id) \
    FROM (SELECT operation_id FROM operation_content WHERE operation_id > ? ORDER BY operation_id LIMIT ?) AS c";

const READ_SPAN: &str = "/* purge.read_span */ SELECT MIN(operation_id), MAX(operation_id) FROM operation_content";

const DELETE_KEPT_ROWS: &str = "/* purge.delete_kept_rows */ \
    DELETE r FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j \
    STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id WHERE r.batch_id IS NOT NULL";

const DELETE_CONTENTS: &str = "/* purge.delete_contents */ \
    DELETE c FROM JSON_TABLE(?, '$[*]' COLUMNS (operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
    STRAIGHT_JOIN operation_content c FORCE INDEX (PRIMARY) ON c.operation_id = j.operation_id";

const DELETE_PATHS: &str = "/* purge.delete_paths */ \
    DELETE p FROM JSON_TABLE(?, '$[*]' COLUMNS (operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
    STRAIGHT_JOIN request_path p FORCE INDEX (PRIMARY) ON p.operation_id = j.operation_id";

impl Guarded for Purge {
    const NAME: &'static str = "purge";
    type Outcome = Purged;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<Purged>, StoreError> {
        let mut purged = contents_anywhere(tx).await?;
        let kept = purged.next.clone();
        purged.add(&dated(tx).await?);
        purged.next = kept;
        decide(purged, false)
    }

    fn outcome_name(outcome: &Purged) -> &'static str {
        name(outcome)
    }
}

impl Guarded for PurgeDated {
    const NAME: &'static str = "purge_dated";
    type Outcome = Purged;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<Purged>, StoreError> {
        decide(dated(tx).await?, self.dry_run)
    }

    fn outcome_name(outcome: &Purged) -> &'static str {
        name(outcome)
    }
}

impl Guarded for PurgeContents {
    const NAME: &'static str = "purge_contents";
    type Outcome = Purged;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<Purged>, StoreError> {
        let after = self.after.as_ref().map_or("", OperationId::as_str);
        decide(contents_after(tx, after).await?, self.dry_run)
    }

    fn outcome_name(outcome: &Purged) -> &'static str {
        name(outcome)
    }
}

fn decide(purged: Purged, dry_run: bool) -> Result<Decision<Purged>, StoreError> {
    if dry_run || purged.total() == 0 { refuse(purged) } else { commit(purged) }
}

fn name(purged: &Purged) -> &'static str {
    if purged.total() == 0 { "nothing_to_purge" } else { "purged" }
}

async fn dated(tx: &mut Tx<'_>) -> Result<Purged, StoreError> {
    let mut purged = Purged::default();
    let mut deliveries = tx.rows::<(String,)>(FIND_OLD_DELIVERIES, (DATED_MAX,)).await?;
    if !deliveries.is_empty() {
        deliveries.sort_unstable();
        let keys: Vec<String> = deliveries.into_iter().map(|(key,)| key).collect();
        purged.outbox = tx.write(DELETE_OLD_DELIVERIES, (json!(keys).to_string(),)).await?;
    }
    let mut keys = tx.rows::<(String, String)>(FIND_EXPIRED_KEYS, (DATED_MAX,)).await?;
    if !keys.is_empty() {
        keys.sort_unstable();
        let rows: Vec<_> = keys.into_iter().map(|(principal, key)| json!({ "p": principal, "k": key })).collect();
        purged.idempotency = tx.write(DELETE_EXPIRED_KEYS, (json!(rows).to_string(),)).await?;
    }
    Ok(purged)
}

/// From a random place on, so that the living contents of a large system never hide what lies behind them.
async fn contents_anywhere(tx: &mut Tx<'_>) -> Result<Purged, StoreError> {
    let Some((Some(oldest), Some(newest))) = tx.first::<(Option<String>, Option<String>)>(READ_SPAN, ()).await? else {
        return Ok(Purged::default());
    };
    let purged = contents_after(tx, &between(&oldest, &newest)).await?;
    // Nothing from there to the end: the rest lies before it.
    if purged.total() == 0 && purged.next.is_none() { contents_after(tx, "").await } else { Ok(purged) }
}

/// A place between two ids, which begin with their time of birth in milliseconds.
fn between(oldest: &str, newest: &str) -> String {
    let born = |id: &str| u64::from_str_radix(&id.replace('-', "")[..12.min(id.len())], 16).unwrap_or_default();
    let (from, to) = (born(oldest), born(newest));
    let at = if from < to { rand::random_range(from..=to) } else { from };
    format!("{:08x}-{:04x}", at >> 16, at & 0xffff)
}

async fn contents_after(tx: &mut Tx<'_>, after: &str) -> Result<Purged, StoreError> {
    let found = tx.rows::<(String, Option<u64>, u64)>(FIND_ENDED_CONTENTS, (after, WINDOW, CONTENT_ROWS_MAX)).await?;
    let mut rows = 0;
    let (mut operations, mut kept_rows) = (Vec::new(), Vec::new());
    let mut is_full = found.len() as u64 == CONTENT_ROWS_MAX;
    for (operation, row, paths) in found {
        let more = 1 + paths + u64::from(row.is_some());
        if rows > 0 && rows + more > CONTENT_ROWS_MAX {
            is_full = true;
            break;
        }
        rows += more;
        kept_rows.extend(row);
        operations.push(operation);
    }
    let next = if is_full { operations.last().cloned() } else { end_of_window(tx, after).await? };
    let next = next.map(OperationId::parse).transpose().map_err(|why| StoreError::corrupt(why.to_string()))?;
    let mut purged = Purged { next, ..Purged::default() };
    if operations.is_empty() {
        return Ok(purged);
    }
    if !kept_rows.is_empty() {
        kept_rows.sort_unstable();
        purged.waiting_rows = tx.write(DELETE_KEPT_ROWS, (json!(kept_rows).to_string(),)).await?;
    }
    let operations = json!(operations).to_string();
    purged.contents = tx.write(DELETE_CONTENTS, (&operations,)).await?;
    purged.paths = tx.write(DELETE_PATHS, (&operations,)).await?;
    Ok(purged)
}

/// Last id of the window, unless it reaches to the newest.
async fn end_of_window(tx: &mut Tx<'_>, after: &str) -> Result<Option<String>, StoreError> {
    match tx.first::<(u64, Option<String>)>(READ_WINDOW, (after, WINDOW)).await? {
        Some((seen, last)) if seen == u64::from(WINDOW) => Ok(last),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_lies_between_the_ids() {
        let (oldest, newest) = ("01890000-0000-7abc-8000-000000000000", "01890000-00ff-7abc-8000-000000000000");
        for _ in 0..100 {
            let place = between(oldest, newest);
            assert!(("01890000-0000".."01890000-0100").contains(&place.as_str()), "{place}");
        }
        assert_eq!(between(oldest, oldest), "01890000-0000");
    }
}
