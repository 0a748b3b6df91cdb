//! Takes a request back: at once while it waits, else noted for when its batch ends or is closed.
//!
//! Guards: the waiting row is unclaimed, the operation is in the state and version read, the binding is this application's.
//! Refusals: `Ended`, `Unknown`, `Preempted`, `OperatorsOnly`.
//! Locks, in house order: waiting row, operation, binding, histories, outbox, target.

use serde_json::json;

use crate::error::StoreError;
use crate::ids::{OperationId, PartitionKey, Principal};
use crate::outbox::{Effect, PublishedRequest};
use crate::state::{Action, BindingStatus, OperationStatus};
use crate::transactions::seats::{self, Moved};
use crate::tx::{Decision, Guarded, Inserted, Tx, commit, refuse, rerun};

#[derive(Debug, Clone)]
pub struct Withdraw {
    pub operation: OperationId,
    pub actor: Principal,
    /// The state a waiting request ends in: WITHDRAWN, or REJECTED where it expired while waiting.
    pub ending: WaitingEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingEnd {
    Withdrawn,
    /// Only if its expires_at has passed, by the database's clock.
    Expired,
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithdrawOutcome {
    Withdrawn,
    /// In a batch, or FAILED: honoured when the batch fails, or when the sweep has asked the target branch.
    Noted {
        status: OperationStatus,
    },
    /// It has ended already.
    Ended {
        status: OperationStatus,
    },
    /// Closing a FAILED revoke stays with operators.
    OperatorsOnly,
    Unknown,
    /// It changed while this was decided.
    Preempted,
}

const READ_OPERATION: &str = "/* withdraw.read_operation */ \
    SELECT partition_key, subject_id, target_key, action, status, version, \
           withdraw_requested_at IS NOT NULL, COALESCE(expires_at <= CURRENT_TIMESTAMP(6), 0) FROM operation WHERE operation_id = ?";

const READ_WAITING_ROW: &str =
    "/* withdraw.read_waiting_row */ SELECT id FROM merge_batch_request WHERE operation_id = ? AND batch_id IS NULL";

const DELETE_WAITING_ROW: &str = "/* withdraw.delete_waiting_row */ DELETE FROM merge_batch_request WHERE id = ? AND batch_id IS NULL";

const END_WAITING_OPERATION: &str = "/* withdraw.end_waiting_operation */ \
    UPDATE operation SET status = ?, code = ?, settled_at = CURRENT_TIMESTAMP(6), updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE operation_id = ? AND status = 1 AND version = ?";

const NOTE_WISH: &str = "/* withdraw.note_wish_of_unended_operation */ \
    UPDATE operation SET withdraw_requested_at = CURRENT_TIMESTAMP(6), updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE operation_id = ? AND status = ? AND version = ? AND withdraw_requested_at IS NULL";

const MOVE_APPLIED_BINDING: &str = "/* withdraw.move_applied_binding */ \
    UPDATE binding SET status = ?, updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE subject_id = ? AND target_key = ? AND operation_id = ? AND status = ?";

const INSERT_BINDING_HISTORY: &str = "/* withdraw.insert_binding_history */ \
    INSERT INTO binding_history (subject_id, target_key, operation_id, from_status, to_status, actor) VALUES (?, ?, ?, ?, ?, ?)";

const INSERT_AUDIT: &str = "/* withdraw.insert_audit */ \
    INSERT INTO audit_record (dedup_key, action, actor, partition_key, operation_id, before_state, after_state) VALUES (?, ?, ?, ?, ?, ?, ?)";

type Columns = (String, String, String, i64, i64, u64, i64, i64);

struct Operation {
    partition: PartitionKey,
    subject_id: String,
    target_key: String,
    action: Action,
    status: OperationStatus,
    version: u64,
}

impl Guarded for Withdraw {
    const NAME: &'static str = "withdraw";
    type Outcome = WithdrawOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<WithdrawOutcome>, StoreError> {
        let Some(columns) = tx.first::<Columns>(READ_OPERATION, (&self.operation,)).await? else { return refuse(WithdrawOutcome::Unknown) };
        let (partition, subject_id, target_key, action, status, version, noted, expired) = columns;
        let operation = Operation {
            partition: PartitionKey::parse(partition).map_err(|why| StoreError::corrupt(why.to_string()))?,
            subject_id,
            target_key,
            action: Action::from_code(action)?,
            status: OperationStatus::from_code(status)?,
            version,
        };
        match (operation.status, self.ending) {
            (OperationStatus::Waiting, WaitingEnd::Expired) if expired == 0 => refuse(WithdrawOutcome::Preempted),
            (OperationStatus::Waiting, _) => self.end_waiting(tx, &operation).await,
            // The COMMIT whose answer was lost had arrived.
            (OperationStatus::Withdrawn, WaitingEnd::Withdrawn) | (OperationStatus::Rejected, WaitingEnd::Expired) if tx.is_resumed() => {
                refuse(WithdrawOutcome::Withdrawn)
            }
            (_, WaitingEnd::Expired) => refuse(WithdrawOutcome::Preempted),
            (OperationStatus::Failed, _) if operation.action == Action::Revoke => refuse(WithdrawOutcome::OperatorsOnly),
            (OperationStatus::InBatch | OperationStatus::Failed, _) if noted == 1 => {
                refuse(WithdrawOutcome::Noted { status: operation.status })
            }
            (OperationStatus::InBatch | OperationStatus::Failed, _) => self.note(tx, &operation).await,
            (status, _) => refuse(WithdrawOutcome::Ended { status }),
        }
    }

    fn outcome_name(outcome: &WithdrawOutcome) -> &'static str {
        match outcome {
            WithdrawOutcome::Withdrawn => "withdrawn",
            WithdrawOutcome::Noted { .. } => "noted",
            WithdrawOutcome::Ended { .. } => "ended",
            WithdrawOutcome::OperatorsOnly => "operators_only",
            WithdrawOutcome::Unknown => "unknown",
            WithdrawOutcome::Preempted => "preempted",
        }
    }
}

impl Withdraw {
    async fn note(&self, tx: &mut Tx<'_>, operation: &Operation) -> Result<Decision<WithdrawOutcome>, StoreError> {
        if tx.write(NOTE_WISH, (&self.operation, operation.status, operation.version)).await? == 0 {
            return rerun(WithdrawOutcome::Preempted);
        }
        self.record(tx, operation, "withdraw_requested", operation.status).await?;
        commit(WithdrawOutcome::Noted { status: operation.status })
    }

    async fn end_waiting(&self, tx: &mut Tx<'_>, operation: &Operation) -> Result<Decision<WithdrawOutcome>, StoreError> {
        let (to, code, grant_to, action) = match self.ending {
            WaitingEnd::Withdrawn => (OperationStatus::Withdrawn, None, BindingStatus::Closed, "withdraw"),
            WaitingEnd::Expired => (OperationStatus::Rejected, Some("expired"), BindingStatus::Rejected, "expire"),
        };
        let (from_binding, to_binding) = match operation.action {
            Action::Grant => (BindingStatus::Applying, grant_to),
            Action::Revoke => (BindingStatus::Revoking, BindingStatus::Active),
        };
        let Some((row,)) = tx.first::<(u64,)>(READ_WAITING_ROW, (&self.operation,)).await? else {
            return rerun(WithdrawOutcome::Preempted);
        };
        if tx.write(DELETE_WAITING_ROW, (row,)).await? == 0
            || tx.write(END_WAITING_OPERATION, (to, code, &self.operation, operation.version)).await? == 0
        {
            return rerun(WithdrawOutcome::Preempted); // A round claimed it first.
        }
        let relationship = (&operation.subject_id, &operation.target_key);
        tx.write_exactly(1, MOVE_APPLIED_BINDING, (to_binding, relationship.0, relationship.1, &self.operation, from_binding)).await?;
        tx.write_exactly(
            1,
            INSERT_BINDING_HISTORY,
            (relationship.0, relationship.1, &self.operation, from_binding, to_binding, &self.actor),
        )
        .await?;
        self.record(tx, operation, action, to).await?;
        if let Some(event) = crate::outbox::request_event(to) {
            let request = PublishedRequest {
                operation: &self.operation,
                version: operation.version + 1,
                partition: &operation.partition,
                batch: None,
                subject_id: &operation.subject_id,
                target_key: &operation.target_key,
                action: operation.action,
                status: to,
            };
            tx.emit(&[Effect::publish_request(event, &request)]).await?;
        }
        let mut change = seats::Change::default();
        change.note(&operation.target_key, from_binding, to_binding);
        match seats::apply(tx, &change).await? {
            Moved::All => commit(WithdrawOutcome::Withdrawn),
            Moved::CapacityChanged => rerun(WithdrawOutcome::Preempted),
        }
    }

    async fn record(&self, tx: &mut Tx<'_>, operation: &Operation, action: &'static str, to: OperationStatus) -> Result<(), StoreError> {
        let key = format!("{action}:{}:{}", self.operation, operation.version + 1);
        let before = json!({ "status": operation.status.name() }).to_string();
        let after = json!({ "status": to.name() }).to_string();
        match tx.insert_new(INSERT_AUDIT, (key, action, &self.actor, &operation.partition, &self.operation, before, after)).await? {
            Inserted::New(_) | Inserted::Duplicate(_) => Ok(()), // A duplicate: already recorded.
        }
    }
}
