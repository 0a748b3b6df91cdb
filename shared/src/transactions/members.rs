//! Ends claims of requests, set by set: waiting rows, operations, bindings, histories, effects, seats.
//!
//! Guards: each row is still claimed by this batch, each operation still IN_BATCH at the version read,
//! each binding still in the state that this application brought it to.
//! Locks, in house order: waiting rows, operations, bindings, histories, outbox, targets.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId, Principal};
use crate::outbox::{CausingBatch, Effect, PublishedRequest, request_event};
use crate::state::{Action, BindingStatus, MemberOutcome, OperationStatus};
use crate::transactions::deliveries::clip;
use crate::transactions::seats;
use crate::tx::Tx;

/// Rows per statement: the number of statements grows with chunks, not with members.
pub const CHUNK: usize = 500;
/// The third rejection of an expiry revoke makes the relationship FAILED, for a person to look at.
const EXPIRY_REJECTIONS_MAX: u64 = 3;

/// One member of a batch, as read under the gate.
#[derive(Debug, Clone)]
pub struct Member {
    pub row: u64,
    pub operation: OperationId,
    pub subject_id: String,
    pub target_key: String,
    pub action: Action,
    pub requested_by: String,
    pub withdraw_requested: bool,
    pub version: u64,
    pub expiry_rejections: u64,
    pub content_attempts: u64,
    /// A batch that carried it failed by its content, and it may be the one to blame.
    pub is_suspect: bool,
}

/// How one member's claim ends.
#[derive(Debug, Clone)]
pub struct MemberEnd {
    pub member: Member,
    pub outcome: MemberOutcome,
    /// A requeued member that is under suspicion waits with so many peers at most; `None`: no blame.
    pub peer_limit: Option<u64>,
    pub code: Option<String>,
    /// Cut to what a message column holds.
    pub evidence: Option<String>,
}

#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    All,
    /// A member changed since it was read: the unit must run again.
    Preempted,
}

const READ_MEMBERS: &str = "/* members.read */ \
    SELECT r.id, r.operation_id, o.subject_id, o.target_key, o.action, o.requested_by, \
           o.withdraw_requested_at IS NOT NULL, o.version, b.expiry_rejections, r.content_attempts, r.suspect_of IS NOT NULL \
    FROM merge_batch_request r \
    JOIN operation o ON o.operation_id = r.operation_id \
    JOIN binding b ON b.subject_id = o.subject_id AND b.target_key = o.target_key \
    WHERE r.batch_id = ? AND o.status = 2 ORDER BY r.id";

const REQUEUE_CLAIMED_ROWS: &str = "/* members.requeue_claimed_rows */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j \
    STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id \
    SET r.batch_id = NULL, r.infra_attempts = r.infra_attempts + 1, r.version = r.version + 1 WHERE r.batch_id = ?";

const REQUEUE_SUSPECT_ROWS: &str = "/* members.requeue_suspect_claimed_rows */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$.i', peer_limit INT UNSIGNED PATH '$.l')) AS j \
    STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id \
    SET r.batch_id = NULL, r.content_attempts = r.content_attempts + 1, r.suspect_of = ?, r.peer_limit = j.peer_limit, \
        r.version = r.version + 1 WHERE r.batch_id = ?";

const DELETE_CLAIMED_ROWS: &str = "/* members.delete_claimed_rows */ \
    DELETE r FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j \
    STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id WHERE r.batch_id = ?";

const MOVE_BATCHED_OPERATIONS: &str = "/* members.move_batched_operations */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$.o', version BIGINT UNSIGNED PATH '$.v', \
        to_status TINYINT PATH '$.s', code VARCHAR(64) PATH '$.c', message VARCHAR(1024) PATH '$.m')) AS j \
    STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.operation_id = j.operation_id \
    SET o.status = j.to_status, o.code = j.code, o.message = j.message, \
        o.settled_at = IF(j.to_status IN (3, 4, 6, 7), CURRENT_TIMESTAMP(6), NULL), \
        o.updated_at = CURRENT_TIMESTAMP(6), o.version = o.version + 1 \
    WHERE o.status = 2 AND o.batch_id = ? AND o.version = j.version";

const MOVE_APPLIED_BINDINGS: &str = "/* members.move_applied_bindings */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$.o', \
        subject_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$.u', \
        target_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$.t', \
        from_status TINYINT PATH '$.f', to_status TINYINT PATH '$.s', \
        is_granted TINYINT PATH '$.g', rejections INT UNSIGNED PATH '$.r')) AS j \
    STRAIGHT_JOIN binding b FORCE INDEX (PRIMARY) ON b.subject_id = j.subject_id AND b.target_key = j.target_key \
    SET b.status = j.to_status, b.expiry_rejections = j.rejections, \
        b.granted_by_operation_id = IF(j.is_granted = 1, j.operation_id, b.granted_by_operation_id), \
        b.updated_at = CURRENT_TIMESTAMP(6), b.version = b.version + 1 \
    WHERE b.status = j.from_status AND b.operation_id = j.operation_id";

const RECORD_BINDING_HISTORY: &str = "/* members.record_binding_history */ \
    INSERT INTO binding_history (subject_id, target_key, operation_id, from_status, to_status, batch_id, actor) \
    SELECT j.subject_id, j.target_key, j.operation_id, j.from_status, j.to_status, ?, ? \
    FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) PATH '$.o', subject_id VARCHAR(128) PATH '$.u', target_key VARCHAR(128) PATH '$.t', \
        from_status TINYINT PATH '$.f', to_status TINYINT PATH '$.s')) AS j";

const RECORD_OPEN_OUTCOMES: &str = "/* members.record_open_outcomes */ \
    UPDATE JSON_TABLE(?, '$[*]' COLUMNS ( \
        operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$.o', \
        outcome TINYINT PATH '$.x', evidence VARCHAR(1024) PATH '$.m')) AS j \
    STRAIGHT_JOIN merge_batch_member m FORCE INDEX (PRIMARY) ON m.batch_id = ? AND m.operation_id = j.operation_id \
    SET m.outcome = j.outcome, m.evidence = j.evidence WHERE m.outcome IS NULL";

type Columns = (u64, String, String, String, i64, String, i64, u64, u64, u64, i64);

/// The members that are still in the batch, in the order of their rows.
pub async fn read(tx: &mut Tx<'_>, batch: BatchId) -> Result<Vec<Member>, StoreError> {
    tx.rows::<Columns>(READ_MEMBERS, (batch,)).await?.into_iter().map(member_from).collect()
}

fn member_from(columns: Columns) -> Result<Member, StoreError> {
    let (row, operation, subject_id, target_key, action, requested_by, withdraw, version, expiry_rejections, content_attempts, suspect) =
        columns;
    Ok(Member {
        row,
        operation: OperationId::parse(operation).map_err(|why| StoreError::corrupt(why.to_string()))?,
        subject_id,
        target_key,
        action: Action::from_code(action)?,
        requested_by,
        withdraw_requested: withdraw == 1,
        version,
        expiry_rejections,
        content_attempts,
        is_suspect: suspect == 1,
    })
}

/// States that one end leads to: the operation's, and the binding's before and after (`None`: it stays).
fn transition(action: Action, outcome: MemberOutcome) -> (OperationStatus, Option<(BindingStatus, BindingStatus)>) {
    use BindingStatus::{Active, Applying, Closed, Failed, Rejected, Revoking};
    let (to, grant, revoke) = match outcome {
        MemberOutcome::Requeued => return (OperationStatus::Waiting, None),
        MemberOutcome::Merged => (OperationStatus::Merged, Active, Closed),
        MemberOutcome::Rejected | MemberOutcome::Expelled => (OperationStatus::Rejected, Rejected, Active),
        MemberOutcome::Withdrawn => (OperationStatus::Withdrawn, Closed, Active),
        MemberOutcome::Failed => (OperationStatus::Failed, Failed, Failed),
    };
    match action {
        Action::Grant => (to, Some((Applying, grant))),
        Action::Revoke => (to, Some((Revoking, revoke))),
    }
}

/// An expiry revoke that is rejected for the third time is not tried again by itself.
fn count_expiry_rejections(mut end: MemberEnd) -> MemberEnd {
    let is_expiry = end.member.requested_by == Principal::expiry().as_str();
    if is_expiry && matches!(end.outcome, MemberOutcome::Rejected | MemberOutcome::Expelled) {
        end.member.expiry_rejections += 1;
        if end.member.expiry_rejections >= EXPIRY_REJECTIONS_MAX {
            tracing::error!(event = "alarm", alarm = "expiry_revoke_failed", operation = %end.member.operation, rejections = end.member.expiry_rejections);
            end.outcome = MemberOutcome::Failed;
        }
    }
    end
}

/// Ends the given members' claims. `batch` is the batch after its own guarded write; `effects` are its own, written with
/// those of the members, so that the outbox comes after the rows.
pub async fn end(
    tx: &mut Tx<'_>,
    batch: &CausingBatch,
    actor: &str,
    ends: Vec<MemberEnd>,
    mut effects: Vec<Effect>,
) -> Result<Ended, StoreError> {
    // What was expelled was never in the commit, and its membership says so whatever becomes of the request.
    let expelled: BTreeSet<OperationId> =
        ends.iter().filter(|end| end.outcome == MemberOutcome::Expelled).map(|end| end.member.operation.clone()).collect();
    let mut ends: Vec<MemberEnd> = ends.into_iter().map(count_expiry_rejections).collect();
    if leave_rows(tx, batch.id, &ends).await? == Ended::Preempted {
        return Ok(Ended::Preempted);
    }
    // Within a table ascending by key: operations first, then relationships.
    ends.sort_by(|a, b| a.member.operation.cmp(&b.member.operation));
    for chunk in ends.chunks(CHUNK) {
        let rows = json_rows(chunk, |end| {
            let (to, _) = transition(end.member.action, end.outcome);
            let message = end.evidence.as_deref().map(clip);
            Some(json!({ "o": end.member.operation, "v": end.member.version, "s": to.code(), "c": end.code, "m": message }))
        });
        if tx.write(MOVE_BATCHED_OPERATIONS, (rows, batch.id)).await? != chunk.len() as u64 {
            return Ok(Ended::Preempted);
        }
    }
    move_bindings(tx, batch, actor, &ends).await?;
    for chunk in ends.chunks(CHUNK) {
        let rows = json_rows(chunk, |end| {
            let outcome = if expelled.contains(&end.member.operation) { MemberOutcome::Expelled } else { end.outcome };
            Some(json!({ "o": end.member.operation, "x": outcome.code(), "m": end.evidence.as_deref().map(clip) }))
        });
        tx.write_exactly(chunk.len(), RECORD_OPEN_OUTCOMES, (rows, batch.id)).await?;
    }
    effects.extend(events(batch, &ends));
    tx.emit(&effects).await?;
    move_seats(tx, &ends).await
}

/// Requeues rows in place, or deletes them: deleting and inserting anew would lock the gaps of the unique key.
async fn leave_rows(tx: &mut Tx<'_>, batch: BatchId, ends: &[MemberEnd]) -> Result<Ended, StoreError> {
    let rows_that =
        |leave: fn(&MemberEnd) -> bool| -> Vec<u64> { ends.iter().filter(|end| leave(end)).map(|end| end.member.row).collect() };
    let requeued = rows_that(|end| end.outcome == MemberOutcome::Requeued && end.peer_limit.is_none());
    for (sql, rows) in [(REQUEUE_CLAIMED_ROWS, requeued), (DELETE_CLAIMED_ROWS, rows_that(|end| end.outcome.drops_row()))] {
        for chunk in rows.chunks(CHUNK) {
            if tx.write(sql, (json!(chunk).to_string(), batch)).await? != chunk.len() as u64 {
                return Ok(Ended::Preempted);
            }
        }
    }
    let suspects: Vec<Value> = ends
        .iter()
        .filter(|end| end.outcome == MemberOutcome::Requeued)
        .filter_map(|end| end.peer_limit.map(|limit| json!({ "i": end.member.row, "l": limit })))
        .collect();
    for chunk in suspects.chunks(CHUNK) {
        if tx.write(REQUEUE_SUSPECT_ROWS, (json!(chunk).to_string(), batch, batch)).await? != chunk.len() as u64 {
            return Ok(Ended::Preempted);
        }
    }
    Ok(Ended::All)
}

async fn move_bindings(tx: &mut Tx<'_>, batch: &CausingBatch, actor: &str, ends: &[MemberEnd]) -> Result<(), StoreError> {
    let mut moving: Vec<(&MemberEnd, BindingStatus, BindingStatus)> =
        ends.iter().filter_map(|end| transition(end.member.action, end.outcome).1.map(|(from, to)| (end, from, to))).collect();
    moving.sort_by(|(a, ..), (b, ..)| (&a.member.subject_id, &a.member.target_key).cmp(&(&b.member.subject_id, &b.member.target_key)));
    for chunk in moving.chunks(CHUNK) {
        let rows = json_rows(chunk, |(end, from, to)| {
            let is_granted = end.member.action == Action::Grant && *to == BindingStatus::Active;
            Some(json!({
                "o": end.member.operation, "u": end.member.subject_id, "t": end.member.target_key, "f": from.code(), "s": to.code(),
                "g": i64::from(is_granted), "r": if is_granted { 0 } else { end.member.expiry_rejections },
            }))
        });
        // A member's relationship belongs to it until it ends, so a lost guard here is no race.
        tx.write_exactly(chunk.len(), MOVE_APPLIED_BINDINGS, (rows.clone(),)).await?;
        tx.write_exactly(chunk.len(), RECORD_BINDING_HISTORY, (batch.id, actor, rows)).await?;
    }
    Ok(())
}

fn events(batch: &CausingBatch, ends: &[MemberEnd]) -> Vec<Effect> {
    ends.iter()
        .filter_map(|end| {
            let (status, _) = transition(end.member.action, end.outcome);
            let request = PublishedRequest {
                operation: &end.member.operation,
                version: end.member.version + 1,
                partition: &batch.partition,
                batch: Some(batch.id),
                subject_id: &end.member.subject_id,
                target_key: &end.member.target_key,
                action: end.member.action,
                status,
            };
            request_event(status).map(|event| Effect::publish_request(event, &request))
        })
        .collect()
}

async fn move_seats(tx: &mut Tx<'_>, ends: &[MemberEnd]) -> Result<Ended, StoreError> {
    let mut change = seats::Change::default();
    for end in ends {
        if let (_, Some((from, to))) = transition(end.member.action, end.outcome) {
            change.note(&end.member.target_key, from, to);
        }
    }
    match seats::apply(tx, &change).await? {
        seats::Moved::All => Ok(Ended::All),
        seats::Moved::CapacityChanged => Ok(Ended::Preempted),
    }
}

fn json_rows<T>(items: &[T], row: impl Fn(&T) -> Option<Value>) -> String {
    Value::Array(items.iter().filter_map(row).collect()).to_string()
}

impl MemberOutcome {
    /// Does the waiting row go? It stays with its batch for MERGED and FAILED.
    fn drops_row(self) -> bool {
        matches!(self, Self::Rejected | Self::Expelled | Self::Withdrawn)
    }
}
