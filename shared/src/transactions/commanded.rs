//! A unit that an operator orders: the same writes as ever, with the state before and after, signed in the audit.
//!
//! Guard, refusals and locks are the unit's own; the audit record comes after them.

use serde_json::Value;

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId};
use crate::transactions::command::{Change, Command, CommandOutcome, Concerns};
use crate::tx::{Decision, Guarded, Tx, refuse, rerun};

/// What the unit changes, and its audit record is found by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Batch(BatchId),
    Operation(OperationId),
}

#[derive(Debug, Clone)]
pub struct Commanded<G> {
    pub unit: G,
    pub subject: Subject,
    pub command: Command,
}

const READ_BATCH: &str = "/* commanded.read_batch */ \
    SELECT JSON_OBJECT('batch_id', CAST(id AS CHAR), 'partition', partition_key, \
        'status', ELT(status, 'RUNNING', 'SUCCEEDED', 'FAILED', 'BLOCKED'), \
        'code', code, 'message', message, 'fail_code', fail_code, 'step', step, 'version', version) FROM merge_batch WHERE id = ?";

const READ_OPERATION: &str = "/* commanded.read_operation */ \
    SELECT JSON_OBJECT('operation_id', operation_id, 'partition', partition_key, \
        'status', ELT(status, 'WAITING', 'IN_BATCH', 'MERGED', 'REJECTED', 'FAILED', 'WITHDRAWN', 'CLOSED'), \
        'code', code, 'batch_id', CAST(batch_id AS CHAR), \
        'withdraw_requested_at', DATE_FORMAT(withdraw_requested_at, '%Y-%m-%dT%H:%i:%s.%fZ'), 'version', version) \
    FROM operation WHERE operation_id = ?";

impl<G: Guarded> Guarded for Commanded<G> {
    const NAME: &'static str = G::NAME;
    /// A refusal is the unit's own outcome.
    type Outcome = CommandOutcome<G::Outcome>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<Self::Outcome>, StoreError> {
        if let Some(done) = self.command.done_before(tx).await? {
            return refuse(done);
        }
        let before = self.read(tx).await?;
        match self.unit.apply(tx).await? {
            Decision::Commit(_) => {}
            Decision::Refuse(outcome) => return refuse(CommandOutcome::Refused(outcome)),
            Decision::Rerun(_) => return rerun(CommandOutcome::Preempted),
        }
        let change = Change { before, after: self.read(tx).await? };
        let concerns = match &self.subject {
            Subject::Batch(batch) => Concerns { batch: Some(*batch), ..Concerns::default() },
            Subject::Operation(operation) => Concerns { operation: Some(operation.clone()), ..Concerns::default() },
        };
        self.command.conclude(tx, &concerns, change).await
    }

    fn outcome_name(outcome: &Self::Outcome) -> &'static str {
        match outcome {
            CommandOutcome::Refused(own) => G::outcome_name(own),
            other => other.name(),
        }
    }
}

impl<G> Commanded<G> {
    async fn read(&self, tx: &mut Tx<'_>) -> Result<Value, StoreError> {
        let text = match &self.subject {
            Subject::Batch(batch) => tx.first::<(String,)>(READ_BATCH, (batch,)).await?,
            Subject::Operation(operation) => tx.first::<(String,)>(READ_OPERATION, (operation,)).await?,
        };
        text.map_or(Ok(Value::Null), |(text,)| serde_json::from_str(&text).map_err(|why| StoreError::corrupt(why.to_string())))
    }
}
