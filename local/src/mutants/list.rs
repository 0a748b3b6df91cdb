//! The list of mutants, as it is written.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::places;

/// Read when it is asked for, so that a changed list costs no build.
const LIST: &str = "tests/mutants.yaml";

/// One change that takes something away which must be there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Begins with its kind: S for SQL, R for Rust.
    pub id: String,
    /// What it takes away, in words.
    pub what: String,
    /// Of SQL: the name in the text's opening comment.
    statement: Option<String>,
    /// Of Rust: the file, from the checkout's root.
    file: Option<String>,
    /// A longer text of the file, in which `text` stands once; for a text that stands in the file more often.
    within: Option<String>,
    pub text: String,
    pub replacement: String,
    /// Integration tests that fail when it is in place, each of them: `claim_races::…`.
    #[serde(default)]
    pub killers: Vec<String>,
    /// Why no test can tell it from the original.
    pub equivalent: Option<String>,
}

/// Where a mutant's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    Statement(&'a str),
    /// An expression of this file.
    File {
        path: &'a str,
        within: Option<&'a str>,
    },
}

impl Mutant {
    /// # Panics
    /// Never for a mutant of [`all`], which has one of the two.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        match (&self.statement, &self.file) {
            (Some(statement), None) => Place::Statement(statement),
            (None, Some(path)) => Place::File { path, within: self.within.as_deref() },
            _ => panic!("the mutant {} has neither a statement nor a file, or both", self.id),
        }
    }

    fn problem(&self) -> Option<String> {
        let places = usize::from(self.statement.is_some()) + usize::from(self.file.is_some());
        let kind = if self.statement.is_some() { 'S' } else { 'R' };
        let wrong = [
            (places != 1, "give either its statement or its file"),
            (places == 1 && !self.id.starts_with(kind), "ids begin with S for SQL and R for Rust"),
            (self.text.is_empty() || self.text == self.replacement, "its replacement changes nothing"),
            (self.killers.is_empty() == self.equivalent.is_none(), "give either its killers or why it is equivalent"),
            (self.what.is_empty(), "say what it takes away"),
        ];
        wrong.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, why)| format!("the mutant {}: {why}", self.id))
    }
}

/// All mutants, in the order of the list.
///
/// # Errors
/// If the list cannot be read or is not of its form, or an id is given twice.
pub fn all() -> Result<Vec<Mutant>> {
    let text = fs::read_to_string(places::checkout().join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let mutants: Vec<Mutant> = serde_yaml_ng::from_str(&text).with_context(|| format!("{LIST} is not a list of mutants"))?;
    if let Some(problem) = mutants.iter().find_map(Mutant::problem) {
        bail!("{problem}");
    }
    let mut ids = BTreeSet::new();
    match mutants.iter().find(|one| !ids.insert(&one.id)) {
        Some(twice) => bail!("the id {} is given to two mutants", twice.id),
        None => Ok(mutants),
    }
}
