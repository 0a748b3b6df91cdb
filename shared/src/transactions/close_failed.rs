//! Closes a FAILED grant that its requester has taken back. The caller has asked Git: its work is not on the target branch.
//!
//! Guards: the operation is FAILED with a wish to withdraw, at the version read; the binding is FAILED by this application.
//! Refusal: `Preempted`. Locks, in house order: waiting row, operation, binding, histories, outbox, target.

use serde_json::json;

use crate::error::StoreError;
use crate::ids::{OperationId, PartitionKey, Principal};
use crate::outbox::{Effect, PublishedRequest};
use crate::state::{Action, BindingStatus, OperationStatus};
use crate::transactions::seats::{self, Moved};
use crate::tx::{Decision, Guarded, Inserted, Tx, commit, refuse, rerun};

#[derive(Debug, Clone)]
pub struct CloseFailed {
    pub operation: OperationId,
    pub actor: Principal,
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseFailedOutcome {
    Closed,
    /// It is not, or not any more, a FAILED grant whose requester wants it closed.
    Preempted,
}

const READ_FAILED_GRANT: &str = "/* close_failed.read_failed_grant */ \
    SELECT partition_key, subject_id, target_key, version, batch_id FROM operation \
    WHERE operation_id = ? AND status = 5 AND action = 1 AND withdraw_requested_at IS NOT NULL";

const READ_KEPT_ROW: &str = "/* close_failed.read_kept_row */ SELECT id, batch_id FROM merge_batch_request WHERE operation_id = ?";

const DELETE_KEPT_ROW: &str = "/* close_failed.delete_kept_row */ DELETE FROM merge_batch_request WHERE id = ? AND batch_id = ?";

const CLOSE_FAILED_OPERATION: &str = "/* close_failed.close_failed_operation */ \
    UPDATE operation SET status = 7, settled_at = CURRENT_TIMESTAMP(6), updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE operation_id = ? AND status = 5 AND version = ? AND withdraw_requested_at IS NOT NULL";

const CLOSE_FAILED_BINDING: &str = "/* close_failed.close_failed_binding */ \
    UPDATE binding SET status = 6, updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE subject_id = ? AND target_key = ? AND status = 5 AND operation_id = ?";

const INSERT_BINDING_HISTORY: &str = "/* close_failed.insert_binding_history */ \
    INSERT INTO binding_history (subject_id, target_key, operation_id, from_status, to_status, batch_id, actor) VALUES (?, ?, ?, ?, ?, ?, ?)";

const INSERT_AUDIT: &str = "/* close_failed.insert_audit */ \
    INSERT INTO audit_record (dedup_key, action, actor, partition_key, operation_id, batch_id, before_state, after_state) \
    VALUES (?, 'close_failed', ?, ?, ?, ?, ?, ?)";

const WAS_OURS: &str = "/* close_failed.was_ours */ SELECT 1 FROM audit_record WHERE dedup_key = ? AND actor = ?";

/// An operation is closed once.
fn audit_key(operation: &OperationId) -> String {
    format!("close_failed:{operation}")
}

struct FailedGrant {
    partition: PartitionKey,
    subject_id: String,
    target_key: String,
    version: u64,
    batch: Option<u64>,
}

impl Guarded for CloseFailed {
    const NAME: &'static str = "close_failed";
    type Outcome = CloseFailedOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<CloseFailedOutcome>, StoreError> {
        if tx.is_resumed() && tx.first::<(i64,)>(WAS_OURS, (audit_key(&self.operation), &self.actor)).await?.is_some() {
            return refuse(CloseFailedOutcome::Closed);
        }
        let Some(grant) = self.read(tx).await? else { return refuse(CloseFailedOutcome::Preempted) };
        let Some((row, batch)) = tx.first::<(u64, Option<u64>)>(READ_KEPT_ROW, (&self.operation,)).await? else {
            return rerun(CloseFailedOutcome::Preempted);
        };
        if tx.write(DELETE_KEPT_ROW, (row, batch)).await? == 0
            || tx.write(CLOSE_FAILED_OPERATION, (&self.operation, grant.version)).await? == 0
        {
            return rerun(CloseFailedOutcome::Preempted); // An operator recovered it first.
        }
        // A FAILED operation's relationship belongs to it until it ends, so a lost guard here is no race.
        tx.write_exactly(1, CLOSE_FAILED_BINDING, (&grant.subject_id, &grant.target_key, &self.operation)).await?;
        self.record(tx, &grant).await?;
        let request = PublishedRequest {
            operation: &self.operation,
            version: grant.version + 1,
            partition: &grant.partition,
            batch: None,
            subject_id: &grant.subject_id,
            target_key: &grant.target_key,
            action: Action::Grant,
            status: OperationStatus::Closed,
        };
        tx.emit(&[Effect::publish_request("request.withdrawn", &request)]).await?;
        let mut change = seats::Change::default();
        change.note(&grant.target_key, BindingStatus::Failed, BindingStatus::Closed);
        match seats::apply(tx, &change).await? {
            Moved::All => commit(CloseFailedOutcome::Closed),
            Moved::CapacityChanged => rerun(CloseFailedOutcome::Preempted),
        }
    }

    fn outcome_name(outcome: &CloseFailedOutcome) -> &'static str {
        match outcome {
            CloseFailedOutcome::Closed => "closed",
            CloseFailedOutcome::Preempted => "preempted",
        }
    }
}

impl CloseFailed {
    async fn read(&self, tx: &mut Tx<'_>) -> Result<Option<FailedGrant>, StoreError> {
        let row = tx.first::<(String, String, String, u64, Option<u64>)>(READ_FAILED_GRANT, (&self.operation,)).await?;
        row.map(|(partition, subject_id, target_key, version, batch)| {
            let partition = PartitionKey::parse(partition).map_err(|why| StoreError::corrupt(why.to_string()))?;
            Ok(FailedGrant { partition, subject_id, target_key, version, batch })
        })
        .transpose()
    }

    async fn record(&self, tx: &mut Tx<'_>, grant: &FailedGrant) -> Result<(), StoreError> {
        let (from, to) = (BindingStatus::Failed, BindingStatus::Closed);
        let history = (&grant.subject_id, &grant.target_key, &self.operation, from, to, grant.batch, &self.actor);
        tx.write_exactly(1, INSERT_BINDING_HISTORY, history).await?;
        let before = json!({ "status": OperationStatus::Failed.name(), "version": grant.version }).to_string();
        let after = json!({ "status": OperationStatus::Closed.name(), "version": grant.version + 1 }).to_string();
        let audit = (audit_key(&self.operation), &self.actor, &grant.partition, &self.operation, grant.batch, before, after);
        match tx.insert_new(INSERT_AUDIT, audit).await? {
            Inserted::New(_) | Inserted::Duplicate(_) => Ok(()), // A duplicate: already recorded.
        }
    }
}
