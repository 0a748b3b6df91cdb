//! A statement of ours with another text: a guard taken away, or an order turned round.

use std::sync::{Arc, OnceLock};

use local::mutants::{self, Place};
use shared::tx::{Point, Probe};

use crate::probes::{Reached, name_of};

/// Hands the database another text for one statement, in every unit of a store.
pub struct Mutated {
    inner: Option<Arc<dyn Probe>>,
    change: Change,
    /// Made once: the driver keeps a statement by its text.
    text: OnceLock<&'static str>,
}

/// What a statement's text becomes.
#[derive(Debug, Clone)]
pub struct Change {
    pub statement: String,
    pub text: String,
    pub replacement: String,
}

impl Change {
    /// # Panics
    /// When the text does not stand in the statement once.
    pub fn of(&self, sql: &str) -> String {
        assert_eq!(sql.matches(&self.text).count(), 1, "{:?} does not stand once in {sql}", self.text);
        sql.replace(&self.text, &self.replacement)
    }
}

impl Mutated {
    /// `Mutated::statement("claim.lock_free_gate", " FOR UPDATE SKIP LOCKED", "")`.
    pub fn statement(name: &str, text: &str, replacement: &str) -> Arc<Self> {
        Self::around(None, Change { statement: name.to_owned(), text: text.to_owned(), replacement: replacement.to_owned() })
    }

    /// The change, and whatever else the store is watched by.
    pub fn around(inner: Option<Arc<dyn Probe>>, change: Change) -> Arc<Self> {
        Arc::new(Self { inner, change, text: OnceLock::new() })
    }
}

impl Probe for Mutated {
    fn reached<'a>(&'a self, point: Point<'a>) -> Reached<'a> {
        match &self.inner {
            Some(inner) => inner.reached(point),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn text(&self, sql: &'static str) -> &'static str {
        let sql = self.inner.as_ref().map_or(sql, |inner| inner.text(sql));
        if name_of(sql) != self.change.statement {
            return sql;
        }
        self.text.get_or_init(|| Box::leak(self.change.of(sql).into_boxed_str()))
    }
}

/// The mutant of SQL that this run of the tests carries, if it carries one.
///
/// # Panics
/// When it names a mutant that is not in the list.
pub fn chosen() -> Option<Change> {
    static CHOSEN: OnceLock<Option<Change>> = OnceLock::new();
    CHOSEN
        .get_or_init(|| {
            let id = local::environment::variable(mutants::VARIABLE)?;
            let all = mutants::all().expect("the list of mutants is of its form");
            let mutant = all.into_iter().find(|one| one.id == id).unwrap_or_else(|| panic!("there is no mutant {id}"));
            match mutant.place() {
                Place::Statement(statement) => {
                    Some(Change { statement: statement.to_owned(), text: mutant.text.clone(), replacement: mutant.replacement.clone() })
                }
                // Woven into the sources that this was built from.
                Place::File { .. } => None,
            }
        })
        .clone()
}
