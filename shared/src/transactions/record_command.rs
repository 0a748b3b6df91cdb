//! Signs in the audit what an operator's command has done in units of its own.
//!
//! Guard: none; the record is new or there already. Locks: audit.

use std::convert::Infallible;

use crate::error::StoreError;
use crate::transactions::command::{Change, Command, CommandOutcome, Concerns};
use crate::tx::{Decision, Guarded, Tx};

#[derive(Debug, Clone)]
pub struct RecordCommand {
    pub command: Command,
    pub concerns: Concerns,
    pub change: Change,
}

impl Guarded for RecordCommand {
    const NAME: &'static str = "record_command";
    type Outcome = CommandOutcome<Infallible>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<Self::Outcome>, StoreError> {
        self.command.conclude(tx, &self.concerns, self.change.clone()).await
    }

    fn outcome_name(outcome: &Self::Outcome) -> &'static str {
        outcome.name()
    }
}
