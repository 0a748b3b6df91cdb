//! Puts a request into the waiting set, once.
//!
//! Guards: the idempotency key is new, the relationship may be applied for, the target has a seat.
//! Refusals: every other outcome but `Admitted`; nothing is written then, so the key may be tried again.
//! Locks: target (seat, or shared), then only new rows and the one binding. Never the gate.

mod rows;
mod target;

use crate::error::StoreError;
use crate::ids::{OperationId, PartitionKey, Principal, RequestKey};
use crate::paths;
use crate::request::{FileChange, Request};
use crate::state::{Action, BindingStatus, OperationStatus};
use crate::tx::{Decision, Guarded, Inserted, Tx, commit, refuse, rerun};

#[derive(Debug, Clone)]
pub struct Admit {
    pub principal: Principal,
    pub key: RequestKey,
    /// Chosen before BEGIN: after an unanswered COMMIT it tells that the admission was ours.
    pub operation: OperationId,
    pub request: Request,
    /// An unknown target is refused instead of created.
    pub strict_targets: bool,
}

/// What is true of an admitted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    pub operation: OperationId,
    pub status: OperationStatus,
    /// RFC 3339, UTC, microseconds.
    pub created_at: String,
}

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmitOutcome {
    Admitted(Admission),
    /// The key was used before, with the same command.
    Replayed(Admission),
    /// The key was used before, with another command.
    KeyReused {
        operation: OperationId,
    },
    /// The winner of the key has rolled back meanwhile: try again.
    WinnerGone,
    /// The relationship is held in a state that does not allow this action; `None`: there is none.
    BindingHeld {
        status: Option<BindingStatus>,
        operation: Option<OperationId>,
    },
    SeatsExhausted {
        capacity: u64,
        used: u64,
    },
    TargetClosed,
    UnknownTarget,
    PartitionNotConfigured,
    PartitionClosed {
        partition: PartitionKey,
    },
    /// The moment has passed already, by the database's clock.
    ExpiresInThePast,
    PathRefused {
        problems: Vec<String>,
    },
    /// A race for the relationship or the target was lost more often than it is rerun.
    Preempted,
}

impl Guarded for Admit {
    const NAME: &'static str = "admit";
    type Outcome = AdmitOutcome;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<AdmitOutcome>, StoreError> {
        if let Some(known) = self.known(tx).await? {
            return refuse(known);
        }
        match self.decide(tx).await? {
            // Each statement sees what was committed before it: the relationship that is held, or the seat that
            // is taken, may be this very request's, admitted under its key since we asked for it.
            Decision::Refuse(outcome) => refuse(self.known(tx).await?.unwrap_or(outcome)),
            decision => Ok(decision),
        }
    }

    fn outcome_name(outcome: &AdmitOutcome) -> &'static str {
        outcome.name()
    }
}

impl Admit {
    async fn decide(&self, tx: &mut Tx<'_>) -> Result<Decision<AdmitOutcome>, StoreError> {
        let target = match target::hold(tx, &self.request, self.strict_targets).await? {
            target::Hold::Held(target) => target,
            target::Hold::Refused(outcome) => return refuse(outcome),
            target::Hold::Changed => return rerun(AdmitOutcome::Preempted),
        };
        let Some(partition) = rows::read_partition(tx, &target.partition, self.request.expires_at).await? else {
            return refuse(AdmitOutcome::PartitionNotConfigured);
        };
        if partition.closed {
            return refuse(AdmitOutcome::PartitionClosed { partition: target.partition });
        }
        if partition.expires_in_the_past {
            return refuse(AdmitOutcome::ExpiresInThePast);
        }
        let binding = rows::read_binding(tx, &self.request).await?;
        if let Some(held) = self.held_by(binding.as_ref()) {
            return refuse(held);
        }
        let files = self.files(tx, &partition, binding.as_ref()).await?;
        // What a grant wrote may be deleted again whatever the prefixes say by now: access must stay revocable.
        let is_granted = self.request.action == Action::Revoke && self.request.change.is_none();
        let everywhere = [String::new()];
        let prefixes = if is_granted { &everywhere[..] } else { &partition.allowed_prefixes };
        let problems: Vec<String> = files.iter().filter_map(|file| path_problem(file, prefixes)).collect();
        if !problems.is_empty() {
            return refuse(AdmitOutcome::PathRefused { problems });
        }
        self.write(tx, &target.partition, binding.as_ref(), &files).await
    }

    /// The answer that an earlier use of the key already decides, on the fast path and after a conflict alike.
    async fn known(&self, tx: &mut Tx<'_>) -> Result<Option<AdmitOutcome>, StoreError> {
        let Some(record) = rows::read_idempotency(tx, &self.principal, &self.key).await? else { return Ok(None) };
        if record.payload_hash != self.request.payload_hash() {
            return Ok(Some(AdmitOutcome::KeyReused { operation: record.admission.operation }));
        }
        // Our own id: the COMMIT whose answer was lost had arrived.
        let is_mine = record.admission.operation == self.operation;
        Ok(Some(if is_mine { AdmitOutcome::Admitted(record.admission) } else { AdmitOutcome::Replayed(record.admission) }))
    }

    fn held_by(&self, binding: Option<&rows::Binding>) -> Option<AdmitOutcome> {
        let allowed = match (self.request.action, binding) {
            (Action::Grant, None) => true,
            (Action::Grant, Some(binding)) => binding.status.is_reappliable(),
            (Action::Revoke, binding) => binding.is_some_and(|binding| binding.status == BindingStatus::Active),
        };
        let held =
            || AdmitOutcome::BindingHeld { status: binding.map(|one| one.status), operation: binding.map(|one| one.operation.clone()) };
        (!allowed).then(held)
    }

    /// The files this request writes or deletes, as they are kept from now on.
    async fn files(
        &self,
        tx: &mut Tx<'_>,
        partition: &rows::Partition,
        binding: Option<&rows::Binding>,
    ) -> Result<Vec<FileChange>, StoreError> {
        if let Some(files) = &self.request.change {
            return Ok(files.clone());
        }
        match self.request.action {
            Action::Grant => {
                let path = paths::from_template(&partition.path_template, &self.request.subject, &self.request.target);
                Ok(vec![FileChange { path, content: Some(self.request.template_file()), base: None }])
            }
            // What the grant wrote, whatever the template says by now.
            Action::Revoke => rows::read_granted_files(tx, binding).await,
        }
    }

    async fn write(
        &self,
        tx: &mut Tx<'_>,
        partition: &PartitionKey,
        binding: Option<&rows::Binding>,
        files: &[FileChange],
    ) -> Result<Decision<AdmitOutcome>, StoreError> {
        if let Inserted::Duplicate(_) = rows::insert_idempotency(tx, self).await? {
            // A concurrent request inserted first: READ COMMITTED lets the re-read that follows see the winner.
            return refuse(AdmitOutcome::WinnerGone);
        }
        let created_at = rows::insert_operation(tx, self, partition, files).await?;
        if !rows::apply_binding(tx, self, binding).await? {
            return rerun(AdmitOutcome::Preempted);
        }
        rows::insert_waiting(tx, self, partition, binding, files).await?;
        commit(AdmitOutcome::Admitted(Admission { operation: self.operation.clone(), status: OperationStatus::Waiting, created_at }))
    }
}

fn path_problem(file: &FileChange, prefixes: &[String]) -> Option<String> {
    if let Err(why) = paths::check_path(&file.path) {
        return Some(why);
    }
    (!paths::is_allowed(&file.path, prefixes))
        .then(|| format!("path {:?} lies outside the partition's allowed prefixes {prefixes:?}", file.path))
}

impl AdmitOutcome {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Admitted(_) => "admitted",
            Self::Replayed(_) => "replayed",
            Self::KeyReused { .. } => "key_reused",
            Self::WinnerGone => "winner_gone",
            Self::BindingHeld { .. } => "binding_held",
            Self::SeatsExhausted { .. } => "seats_exhausted",
            Self::TargetClosed => "target_closed",
            Self::UnknownTarget => "unknown_target",
            Self::PartitionNotConfigured => "partition_not_configured",
            Self::PartitionClosed { .. } => "partition_closed",
            Self::ExpiresInThePast => "expires_in_the_past",
            Self::PathRefused { .. } => "path_refused",
            Self::Preempted => "preempted",
        }
    }
}
