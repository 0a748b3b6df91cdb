//! An operator's command: who, why, and the one audit record that it leaves.
//!
//! The record's key is chosen before BEGIN, so that a COMMIT whose answer was lost is found again.

use serde_json::Value;

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId, PartitionKey, Principal};
use crate::tx::{Decision, Inserted, Tx, commit, refuse};

/// Longest reason an operator may give, in characters.
pub const REASON_MAX: usize = 255;

/// What an operator ordered.
#[derive(Debug, Clone)]
pub struct Command {
    /// Such as `set_partition`.
    pub action: &'static str,
    pub actor: Principal,
    /// At most [`REASON_MAX`] characters.
    pub reason: String,
    /// Everything is decided and written as ever, and then rolled back.
    pub dry_run: bool,
    token: [u8; 16],
}

/// The state before and after a command; `null` where there was none.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub before: Value,
    pub after: Value,
}

/// Which rows the audit record is found by.
#[derive(Debug, Clone, Default)]
pub struct Concerns {
    pub partition: Option<PartitionKey>,
    pub operation: Option<OperationId>,
    pub batch: Option<BatchId>,
}

/// How a command came out; `R` says why one was refused.
#[must_use]
#[derive(Debug, Clone, PartialEq)]
pub enum CommandOutcome<R> {
    Done {
        change: Change,
        audit_id: String,
    },
    /// What the command would have done; nothing was written.
    WouldDo {
        change: Change,
    },
    /// All is as ordered already; nothing was written.
    Already {
        state: Value,
    },
    Refused(R),
    /// The state changed again and again while this was decided.
    Preempted,
}

impl<R> CommandOutcome<R> {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::WouldDo { .. } => "dry_run",
            Self::Already { .. } => "already",
            Self::Refused(_) => "refused",
            Self::Preempted => "preempted",
        }
    }
}

const RECORD_COMMAND: &str = "/* command.record_new_command */ \
    INSERT INTO audit_record (dedup_key, action, actor, reason, partition_key, operation_id, batch_id, before_state, after_state) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";

const READ_RECORDED_COMMAND: &str =
    "/* command.read_recorded_command */ SELECT before_state, after_state FROM audit_record WHERE dedup_key = ?";

impl Command {
    pub fn new(action: &'static str, actor: Principal, reason: impl Into<String>, dry_run: bool) -> Self {
        Self { action, actor, reason: reason.into(), dry_run, token: rand::random() }
    }

    /// Key of the command's audit record: `<action>:<32 hex digits>`.
    pub fn audit_id(&self) -> String {
        format!("{}:{}", self.action, hex::encode(self.token))
    }

    /// After an unanswered COMMIT: what this very command has done already.
    pub async fn done_before<R>(&self, tx: &mut Tx<'_>) -> Result<Option<CommandOutcome<R>>, StoreError> {
        if !tx.is_resumed() {
            return Ok(None);
        }
        let recorded = tx.first::<(Option<String>, Option<String>)>(READ_RECORDED_COMMAND, (self.audit_id(),)).await?;
        recorded
            .map(|(before, after)| {
                let change = Change { before: json_from(before)?, after: json_from(after)? };
                Ok(CommandOutcome::Done { change, audit_id: self.audit_id() })
            })
            .transpose()
    }

    /// Ends a unit whose writes are made: a rehearsal is rolled back, anything else signed and committed.
    pub async fn conclude<R>(
        &self,
        tx: &mut Tx<'_>,
        concerns: &Concerns,
        change: Change,
    ) -> Result<Decision<CommandOutcome<R>>, StoreError> {
        if self.dry_run {
            return refuse(CommandOutcome::WouldDo { change });
        }
        self.record(tx, concerns, &change).await?;
        commit(CommandOutcome::Done { change, audit_id: self.audit_id() })
    }

    async fn record(&self, tx: &mut Tx<'_>, concerns: &Concerns, change: &Change) -> Result<(), StoreError> {
        let text = |state: &Value| (!state.is_null()).then(|| state.to_string());
        let row = (
            self.audit_id(),
            self.action,
            &self.actor,
            &self.reason,
            &concerns.partition,
            &concerns.operation,
            concerns.batch,
            text(&change.before),
            text(&change.after),
        );
        match tx.insert_new(RECORD_COMMAND, row).await? {
            Inserted::New(_) | Inserted::Duplicate(_) => Ok(()), // A duplicate: already recorded.
        }
    }
}

fn json_from(text: Option<String>) -> Result<Value, StoreError> {
    match text {
        Some(text) => serde_json::from_str(&text).map_err(|why| StoreError::corrupt(format!("a state in the audit: {why}"))),
        None => Ok(Value::Null),
    }
}
