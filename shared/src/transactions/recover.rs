//! Takes a FAILED operation out of its failure: it waits again, is closed, or counts as merged.
//!
//! Whether it may be closed or counts as merged only Git can say: the caller has asked, of the version that it gives.
//!
//! Guards: the operation is FAILED at the version read; its row is still kept by its batch; the binding is FAILED
//! by this application. Refusals: `Unknown`, `NotFailed`, `WithdrawalWanted`, `PartitionClosed`, `Preempted`.
//! Locks, in house order: waiting row, operation, binding, histories, outbox, target.

use crate::error::StoreError;
use crate::ids::{OperationId, PartitionKey, Principal};
use crate::outbox::{Effect, PublishedRequest, request_event};
use crate::state::{Action, BindingStatus, OperationStatus};
use crate::transactions::seats::{self, Moved};
use crate::tx::{Decision, Guarded, Tx, commit, refuse, rerun};

/// Code of an operation that an operator found merged.
pub const RECOVERED: &str = "recovered";

/// Where a FAILED operation goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoverTo {
    /// Its attempts are forgotten, its place in the waiting set is the one it had.
    Waiting,
    /// A grant that is not on the target branch; of a revoke, the access stands.
    Closed,
    /// It is on the target branch, by this commit.
    Merged { commit: String },
}

impl RecoverTo {
    pub fn status(&self) -> OperationStatus {
        match self {
            Self::Waiting => OperationStatus::Waiting,
            Self::Closed => OperationStatus::Closed,
            Self::Merged { .. } => OperationStatus::Merged,
        }
    }

    /// State of the relationship afterwards.
    fn binding(&self, action: Action) -> BindingStatus {
        match (self, action) {
            (Self::Waiting, Action::Grant) => BindingStatus::Applying,
            (Self::Waiting, Action::Revoke) => BindingStatus::Revoking,
            (Self::Closed, Action::Grant) | (Self::Merged { .. }, Action::Revoke) => BindingStatus::Closed,
            (Self::Closed, Action::Revoke) | (Self::Merged { .. }, Action::Grant) => BindingStatus::Active,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Recover {
    pub operation: OperationId,
    /// Of the operation when Git was asked.
    pub version: u64,
    pub to: RecoverTo,
    pub actor: Principal,
}

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoverOutcome {
    Recovered,
    Unknown,
    NotFailed {
        status: OperationStatus,
    },
    /// Its requester has taken it back: it does not wait again.
    WithdrawalWanted,
    /// Nothing waits in a closed partition.
    PartitionClosed {
        partition: PartitionKey,
    },
    /// It changed since Git was asked.
    Preempted,
}

const READ_OPERATION: &str = "/* recover.read_operation */ \
    SELECT o.partition_key, o.subject_id, o.target_key, o.action, o.status, o.version, o.batch_id, \
           o.withdraw_requested_at IS NOT NULL, p.closed_at IS NOT NULL \
    FROM operation o JOIN merge_partition p ON p.partition_key = o.partition_key WHERE o.operation_id = ?";

const READ_KEPT_ROW: &str = "/* recover.read_kept_row */ \
    SELECT id, batch_id FROM merge_batch_request WHERE operation_id = ? AND batch_id IS NOT NULL";

const RESET_KEPT_ROW: &str = "/* recover.reset_kept_row */ \
    UPDATE merge_batch_request SET batch_id = NULL, content_attempts = 0, infra_attempts = 0, suspect_of = NULL, peer_limit = NULL, \
        version = version + 1 WHERE id = ? AND batch_id = ?";

const DELETE_KEPT_ROW: &str = "/* recover.delete_kept_row */ DELETE FROM merge_batch_request WHERE id = ? AND batch_id = ?";

const MOVE_FAILED_OPERATION: &str = "/* recover.move_failed_operation */ \
    UPDATE operation SET status = ?, code = ?, message = ?, settled_at = IF(?, CURRENT_TIMESTAMP(6), NULL), \
        updated_at = CURRENT_TIMESTAMP(6), version = version + 1 WHERE operation_id = ? AND status = 5 AND version = ?";

/// A person has looked, so rejections of an expiry are counted anew.
const MOVE_FAILED_BINDING: &str = "/* recover.move_failed_binding */ \
    UPDATE binding SET status = ?, granted_by_operation_id = IF(?, operation_id, granted_by_operation_id), expiry_rejections = 0, \
        updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE subject_id = ? AND target_key = ? AND status = 5 AND operation_id = ?";

const INSERT_BINDING_HISTORY: &str = "/* recover.insert_binding_history */ \
    INSERT INTO binding_history (subject_id, target_key, operation_id, from_status, to_status, batch_id, actor) VALUES (?, ?, ?, ?, ?, ?, ?)";

type Columns = (String, String, String, i64, i64, u64, Option<u64>, i64, i64);

struct Failed {
    partition: PartitionKey,
    subject_id: String,
    target_key: String,
    action: Action,
    version: u64,
    batch: Option<u64>,
}

impl Guarded for Recover {
    const NAME: &'static str = "recover";
    type Outcome = RecoverOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<RecoverOutcome>, StoreError> {
        let Some(columns) = tx.first::<Columns>(READ_OPERATION, (&self.operation,)).await? else { return refuse(RecoverOutcome::Unknown) };
        let (partition, subject_id, target_key, action, status, version, batch, is_withdrawn, is_closed) = columns;
        let partition = PartitionKey::parse(partition).map_err(|why| StoreError::corrupt(why.to_string()))?;
        match OperationStatus::from_code(status)? {
            OperationStatus::Failed if version != self.version => return refuse(RecoverOutcome::Preempted),
            OperationStatus::Failed => {}
            status => return refuse(RecoverOutcome::NotFailed { status }),
        }
        if self.to == RecoverTo::Waiting && is_withdrawn == 1 {
            return refuse(RecoverOutcome::WithdrawalWanted);
        }
        if self.to == RecoverTo::Waiting && is_closed == 1 {
            return refuse(RecoverOutcome::PartitionClosed { partition });
        }
        let failed = Failed { partition, subject_id, target_key, action: Action::from_code(action)?, version, batch };
        self.move_all(tx, &failed).await
    }

    fn outcome_name(outcome: &RecoverOutcome) -> &'static str {
        match outcome {
            RecoverOutcome::Recovered => "recovered",
            RecoverOutcome::Unknown => "unknown",
            RecoverOutcome::NotFailed { .. } => "not_failed",
            RecoverOutcome::WithdrawalWanted => "withdrawal_wanted",
            RecoverOutcome::PartitionClosed { .. } => "partition_closed",
            RecoverOutcome::Preempted => "preempted",
        }
    }
}

impl Recover {
    async fn move_all(&self, tx: &mut Tx<'_>, failed: &Failed) -> Result<Decision<RecoverOutcome>, StoreError> {
        let (status, binding) = (self.to.status(), self.to.binding(failed.action));
        if !self.leave_row(tx).await? || !self.move_operation(tx, failed.version).await? {
            return rerun(RecoverOutcome::Preempted); // The sweep closed it, or somebody else recovered it first.
        }
        // A FAILED operation's relationship belongs to it until it ends, so a lost guard here is no race.
        let is_granted = failed.action == Action::Grant && binding == BindingStatus::Active;
        let columns = (binding, is_granted, &failed.subject_id, &failed.target_key, &self.operation);
        tx.write_exactly(1, MOVE_FAILED_BINDING, columns).await?;
        let from = BindingStatus::Failed;
        let history = (&failed.subject_id, &failed.target_key, &self.operation, from, binding, failed.batch, &self.actor);
        tx.write_exactly(1, INSERT_BINDING_HISTORY, history).await?;
        if let Some(event) = request_event(status) {
            tx.emit(&[Effect::publish_request(event, &self.published(failed, status))]).await?;
        }
        let mut change = seats::Change::default();
        change.note(&failed.target_key, from, binding);
        match seats::apply(tx, &change).await? {
            Moved::All => commit(RecoverOutcome::Recovered),
            Moved::CapacityChanged => rerun(RecoverOutcome::Preempted),
        }
    }

    /// The row is reset in place or deleted; of a merged operation it stays with its batch.
    async fn leave_row(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let sql = match self.to {
            RecoverTo::Waiting => RESET_KEPT_ROW,
            RecoverTo::Closed => DELETE_KEPT_ROW,
            RecoverTo::Merged { .. } => return Ok(true),
        };
        let Some(row) = tx.first::<(u64, u64)>(READ_KEPT_ROW, (&self.operation,)).await? else { return Ok(false) };
        Ok(tx.write(sql, row).await? == 1)
    }

    async fn move_operation(&self, tx: &mut Tx<'_>, version: u64) -> Result<bool, StoreError> {
        let status = self.to.status();
        let (code, message) = match &self.to {
            RecoverTo::Merged { commit } => (Some(RECOVERED), Some(format!("on the target branch by {commit}"))),
            RecoverTo::Waiting | RecoverTo::Closed => (None, None),
        };
        let columns = (status, code, message, status.is_terminal(), &self.operation, version);
        Ok(tx.write(MOVE_FAILED_OPERATION, columns).await? == 1)
    }

    fn published<'a>(&'a self, failed: &'a Failed, status: OperationStatus) -> PublishedRequest<'a> {
        PublishedRequest {
            operation: &self.operation,
            version: failed.version + 1,
            partition: &failed.partition,
            batch: None,
            subject_id: &failed.subject_id,
            target_key: &failed.target_key,
            action: failed.action,
            status,
        }
    }
}
