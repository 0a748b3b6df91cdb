//! What came of all units of a storm.

use std::collections::BTreeMap;
use std::fmt;

use shared::{Guarded, StoreError};

use super::Size;

#[derive(Debug, Default)]
pub struct Tally {
    outcomes: BTreeMap<(&'static str, &'static str), u64>,
    /// Faults and corruptions that reached a caller, and what they said.
    pub raw_errors: u64,
    pub errors: Vec<String>,
    /// Most active batches that one partition was ever seen with.
    pub max_active: u64,
}

impl Tally {
    /// Counts an outcome and hands it on; counts an error and keeps what it said.
    pub fn judged<G: Guarded>(&mut self, unit: G, outcome: Result<G::Outcome, StoreError>) -> Option<(G, G::Outcome)> {
        match outcome {
            Ok(outcome) => {
                *self.outcomes.entry((G::NAME, G::outcome_name(&outcome))).or_default() += 1;
                Some((unit, outcome))
            }
            Err(error) => {
                self.raw_errors += 1;
                self.errors.push(format!("{}: {error} ({error:?})", G::NAME));
                None
            }
        }
    }

    pub fn add(&mut self, other: Self) {
        for (name, count) in other.outcomes {
            *self.outcomes.entry(name).or_default() += count;
        }
        self.raw_errors += other.raw_errors;
        self.errors.extend(other.errors);
        self.max_active = self.max_active.max(other.max_active);
    }

    /// How often any unit came to the outcome of this name.
    pub fn of(&self, outcome: &str) -> u64 {
        self.outcomes.iter().filter(|((_, name), _)| *name == outcome).map(|(_, count)| count).sum()
    }

    pub fn verdict(&self, size: Size) -> String {
        let Size { triggers, rounds, .. } = size;
        let Self { max_active, raw_errors, .. } = self;
        format!("storm: {triggers} triggers, {rounds} rounds, max active {max_active}, raw errors {raw_errors}")
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((unit, outcome), count) in &self.outcomes {
            writeln!(f, "{count:>8}  {unit} {outcome}")?;
        }
        Ok(())
    }
}
