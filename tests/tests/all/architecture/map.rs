//! What has been tried in which situation, where it led, and which transitions were seen on the way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use shared::state::{FailCause, OperationStatus};

use super::document::NOTHING;

/// Machine, state before, state after, unit; with the statements of the runs in which it was seen.
pub type Transitions = BTreeMap<(String, String, String, String), BTreeSet<String>>;

/// What can be done to a relationship, and to the batch of its last request, by a unit that may move a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Grant,
    Revoke,
    /// By Muster itself, because the access has run out.
    RevokeExpired,
    Withdraw,
    /// After the grant has run out.
    Expire,
    Claim,
    Render,
    RenderExpelling,
    Succeed,
    BeginFail(FailCause),
    Fail,
    /// As an operator orders it, against what forge and Git say.
    FailAsOrdered(FailCause),
    Block,
    Unblock,
    CloseFailed,
    ReconcileLateMerge,
    Recover(OperationStatus),
}

const STEPS: [Step; 22] = [
    Step::Grant,
    Step::Revoke,
    Step::RevokeExpired,
    Step::Withdraw,
    Step::Expire,
    Step::Claim,
    Step::Render,
    Step::RenderExpelling,
    Step::Succeed,
    Step::BeginFail(FailCause::Content),
    Step::BeginFail(FailCause::Infrastructure),
    Step::BeginFail(FailCause::Rejected),
    Step::Fail,
    Step::FailAsOrdered(FailCause::Infrastructure),
    Step::FailAsOrdered(FailCause::Rejected),
    Step::Block,
    Step::Unblock,
    Step::CloseFailed,
    Step::ReconcileLateMerge,
    Step::Recover(OperationStatus::Waiting),
    Step::Recover(OperationStatus::Closed),
    Step::Recover(OperationStatus::Merged),
];

/// What is there, and what a further unit would find different.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// States of all rows, by machine and key.
    pub states: BTreeMap<(String, String), String>,
    /// Equal for situations that only differ in ids, versions, times, and in what no guard of a state reads.
    pub kind: String,
}

/// The unit that ran last.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    pub unit: &'static str,
    pub statements: BTreeSet<String>,
    pub committed: bool,
}

/// What a walker does next.
pub enum Next {
    Try(Step),
    /// Nothing is left that can be reached from here.
    Elsewhere,
    /// Nothing is left, unless a step that is under way finds something new.
    Wait,
    AllTried,
}

/// Which step leads from which situation to which.
#[derive(Default)]
pub struct Map {
    /// A step may lead to several places: a situation leaves out how often an expiry was rejected before.
    pub ways: BTreeMap<String, BTreeMap<Step, BTreeSet<String>>>,
    pub made: Transitions,
    /// Steps that walkers have taken up and not yet told of.
    pub under_way: u32,
    pub performed: u32,
}

impl Map {
    /// The first step on the shortest way to something that has not been tried. What is tried here counts as tried
    /// from now on, so that no other walker tries it too.
    pub fn next_step(&mut self, here: &str) -> Next {
        if let Some(step) = self.untried(here) {
            self.ways.entry(here.to_owned()).or_default().entry(step).or_default();
            self.under_way += 1;
            return Next::Try(step);
        }
        let (mut seen, mut front) = (BTreeSet::from([here]), VecDeque::from([(here, None)]));
        while let Some((place, first)) = front.pop_front() {
            if let (Some(first), Some(_)) = (first, self.untried(place)) {
                self.under_way += 1;
                return Next::Try(first);
            }
            for (step, places) in self.ways.get(place).into_iter().flatten() {
                let fresh = places.iter().filter(|there| seen.insert(there));
                front.extend(fresh.map(|there| (there.as_str(), first.or(Some(*step)))));
            }
        }
        match (self.unfinished().is_empty(), self.under_way) {
            (true, 0) => Next::AllTried,
            (true, _) => Next::Wait,
            (false, _) => Next::Elsewhere,
        }
    }

    pub fn note(&mut self, here: &Look, step: Step, there: &Look, ran: &Ran) {
        self.under_way -= 1;
        self.performed += 1;
        for (row, to) in &there.states {
            let from = here.states.get(row).map_or(NOTHING, String::as_str);
            if from != to {
                let edge = (row.0.clone(), from.to_owned(), to.clone(), ran.unit.to_owned());
                let statements = self.made.entry(edge).or_default();
                statements.extend(ran.statements.iter().cloned());
            }
        }
        self.ways.entry(here.kind.clone()).or_default().entry(step).or_default().insert(there.kind.clone());
    }

    fn untried(&self, place: &str) -> Option<Step> {
        let tried = self.ways.get(place);
        let is_tried = |step: &Step| tried.is_some_and(|tried| tried.contains_key(step));
        STEPS.into_iter().find(|step| !is_moot(place, *step) && !is_tried(step))
    }

    pub fn unfinished(&self) -> Vec<&str> {
        let known = self.ways.keys().chain(self.ways.values().flat_map(BTreeMap::values).flatten()).map(String::as_str);
        known.filter(|place| self.untried(place).is_some()).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Only an expiry's third rejection differs from the first: the second is passed through, and a requester's revoke
/// does not look at the count.
fn is_moot(place: &str, step: Step) -> bool {
    let rejections = place.strip_prefix("binding ").and_then(|rest| rest.split(' ').nth(1)).unwrap_or("0");
    let leads_on =
        [Step::RevokeExpired, Step::Claim, Step::BeginFail(FailCause::Rejected), Step::FailAsOrdered(FailCause::Rejected), Step::Fail]
            .contains(&step);
    rejections == "1" && !leads_on || rejections != "0" && step == Step::Revoke
}
