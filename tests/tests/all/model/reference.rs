//! What Muster promises of a few relationships, requests and batches, said as plainly as it can be.

use shared::state::{BatchStatus, BindingStatus, FailCause, OperationStatus};

pub const SUBJECTS: usize = 4;
/// Seats of the one target.
pub const SEATS: usize = 3;
/// How long the grants of even subjects last, in seconds.
pub const LASTS_S: u32 = 600;

/// A command, about a subject or about the n-th request or batch.
#[derive(Debug, Clone)]
pub enum Step {
    Grant(usize),
    Revoke(usize),
    Withdraw(usize),
    Expire(usize),
    Recover(usize),
    Claim,
    Succeed(usize),
    BeginFail(usize, FailCause),
    Fail(usize),
    Block(usize),
    Unblock(usize),
    LateMerge(usize),
    /// So many seconds pass.
    Tick(u32),
}

#[derive(Debug, Clone)]
pub struct Request {
    pub subject: usize,
    pub revokes: bool,
    pub status: OperationStatus,
    created_s: u32,
    expires_s: Option<u32>,
    batch: Option<usize>,
    is_wished_back: bool,
}

#[derive(Debug, Clone)]
pub struct Batch {
    pub status: BatchStatus,
    cause: Option<FailCause>,
    members: Vec<usize>,
    is_late: bool,
}

#[derive(Debug, Clone)]
pub struct Binding {
    pub status: BindingStatus,
    request: usize,
}

#[derive(Debug, Clone, Default)]
pub struct Reference {
    pub now_s: u32,
    pub requests: Vec<Request>,
    pub batches: Vec<Batch>,
    pub bindings: [Option<Binding>; SUBJECTS],
}

impl Reference {
    pub fn used(&self) -> usize {
        self.bindings.iter().flatten().filter(|one| one.status.holds_seat()).count()
    }

    /// Whether the step is about something that is there. Halving a batch is told by tests of its own.
    pub fn knows(&self, step: &Step) -> bool {
        match step {
            Step::Withdraw(n) => self.requests.get(*n).is_some_and(|one| one.status != OperationStatus::Failed),
            Step::Expire(n) | Step::Recover(n) => *n < self.requests.len(),
            Step::BeginFail(n, FailCause::Content) => self.batches.get(*n).is_some_and(|one| one.members.len() == 1),
            Step::Succeed(n) | Step::BeginFail(n, _) | Step::Fail(n) | Step::Block(n) | Step::Unblock(n) | Step::LateMerge(n) => {
                *n < self.batches.len()
            }
            Step::Grant(_) | Step::Revoke(_) | Step::Claim | Step::Tick(_) => true,
        }
    }

    pub fn apply(&mut self, step: &Step) {
        use {BatchStatus as B, OperationStatus as O};
        match *step {
            Step::Grant(subject) => self.grant(subject),
            Step::Revoke(subject) => {
                if let Some(binding) = self.bindings[subject].as_mut().filter(|one| one.status == BindingStatus::Active) {
                    *binding = Binding { status: BindingStatus::Revoking, request: self.requests.len() };
                    self.admit(subject, true, None);
                }
            }
            Step::Withdraw(n) => match self.requests[n].status {
                O::Waiting => self.end(n, O::Withdrawn),
                O::InBatch => self.requests[n].is_wished_back = true,
                _ => {}
            },
            Step::Expire(n) if self.requests[n].status == O::Waiting && self.is_expired(n) => self.end(n, O::Rejected),
            Step::Recover(n) if self.requests[n].status == O::Failed => self.end(n, O::Waiting),
            Step::Expire(_) | Step::Recover(_) => {}
            Step::Claim => self.claim(),
            Step::Succeed(n) => {
                if self.batches[n].status.is_active() {
                    self.settle(n, B::Succeeded, |_, _| O::Merged);
                }
            }
            Step::BeginFail(n, cause) => {
                let batch = &mut self.batches[n];
                if batch.status.is_active() && batch.cause.is_none() {
                    batch.cause = Some(cause);
                }
            }
            Step::Fail(n) => {
                if self.batches[n].status.is_active() && self.batches[n].cause.is_some() {
                    self.settle(n, B::Failed, |cause, is_wished_back| match cause {
                        Some(FailCause::Rejected) | None => O::Rejected,
                        Some(_) if is_wished_back => O::Withdrawn,
                        Some(FailCause::Content) => O::Failed,
                        Some(FailCause::Infrastructure) => O::Waiting,
                    });
                }
            }
            Step::Block(n) => self.flip(n, B::Running, B::Blocked),
            Step::Unblock(n) => self.flip(n, B::Blocked, B::Running),
            Step::LateMerge(n) => {
                if self.batches[n].status == B::Failed && !self.batches[n].is_late {
                    self.batches[n].is_late = true;
                    let gone = |&n: &usize| !matches!(self.requests[n].status, O::InBatch | O::Merged);
                    let gone: Vec<usize> = self.batches[n].members.iter().copied().filter(gone).collect();
                    gone.into_iter().for_each(|n| self.end(n, O::Merged));
                }
            }
            Step::Tick(seconds) => self.now_s += seconds,
        }
    }

    fn grant(&mut self, subject: usize) {
        let is_free =
            self.bindings[subject].as_ref().is_none_or(|one| matches!(one.status, BindingStatus::Rejected | BindingStatus::Closed));
        if is_free && self.used() < SEATS {
            self.bindings[subject] = Some(Binding { status: BindingStatus::Applying, request: self.requests.len() });
            self.admit(subject, false, subject.is_multiple_of(2).then_some(self.now_s + LASTS_S));
        }
    }

    fn admit(&mut self, subject: usize, revokes: bool, expires_s: Option<u32>) {
        let (status, created_s) = (OperationStatus::Waiting, self.now_s);
        self.requests.push(Request { subject, revokes, status, created_s, expires_s, batch: None, is_wished_back: false });
    }

    fn is_expired(&self, n: usize) -> bool {
        self.requests[n].expires_s.is_some_and(|at| at <= self.now_s)
    }

    /// What waits since before this moment and has not expired, if no batch is active.
    fn claim(&mut self) {
        let is_due = |&n: &usize| {
            let request = &self.requests[n];
            request.status == OperationStatus::Waiting && request.created_s < self.now_s && !self.is_expired(n)
        };
        let members: Vec<usize> = (0..self.requests.len()).filter(is_due).collect();
        if members.is_empty() || self.batches.iter().any(|one| one.status.is_active()) {
            return;
        }
        for &n in &members {
            (self.requests[n].status, self.requests[n].batch) = (OperationStatus::InBatch, Some(self.batches.len()));
        }
        self.batches.push(Batch { status: BatchStatus::Running, cause: None, members, is_late: false });
    }

    fn flip(&mut self, n: usize, from: BatchStatus, to: BatchStatus) {
        let batch = &mut self.batches[n];
        if batch.status == from && batch.cause.is_none() {
            batch.status = to;
        }
    }

    fn settle(&mut self, n: usize, to: BatchStatus, end: impl Fn(Option<FailCause>, bool) -> OperationStatus) {
        self.batches[n].status = to;
        for member in self.batches[n].members.clone() {
            self.end(member, end(self.batches[n].cause, self.requests[member].is_wished_back));
        }
    }

    /// Brings a request to this state, and its relationship along if it is still this request's.
    fn end(&mut self, n: usize, to: OperationStatus) {
        use {BindingStatus as R, OperationStatus as O};
        self.requests[n].status = to;
        let Request { subject, revokes, .. } = self.requests[n];
        if let Some(binding) = self.bindings[subject].as_mut().filter(|one| one.request == n) {
            binding.status = match (to, revokes) {
                (O::Waiting | O::InBatch, false) => R::Applying,
                (O::Waiting | O::InBatch, true) => R::Revoking,
                (O::Merged, false) | (O::Rejected | O::Withdrawn | O::Closed, true) => R::Active,
                (O::Merged, true) | (O::Withdrawn | O::Closed, false) => R::Closed,
                (O::Rejected, false) => R::Rejected,
                (O::Failed, _) => R::Failed,
            };
        }
    }
}
