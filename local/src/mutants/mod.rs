//! Mutants: our own SQL and Rust with one guard taken away each, and the tests that must die of it.
//!
//! `tests/mutants.yaml` lists them. The checkout is never touched: a copy of it in `.muster/mutants` is built once, with
//! every mutant of Rust woven in behind a question that is answered at run time; a mutant of SQL is a text that the
//! tests' own seam hands to the database instead of the original. So one build serves all of them.

mod build;
mod copy;
mod list;
mod trial;
mod weave;

pub use list::{Mutant, Place, all};
pub use weave::position;

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::progress;
use build::Tests;
use trial::Verdict;

/// Names the mutant that a run of the tests is to carry.
pub const VARIABLE: &str = "MUSTER_MUTANT";

/// Tries the mutants whose ids begin with one of `wanted`, or all; fails where one outlives a killer.
///
/// # Errors
/// If the list is wrong, the copy does not build, or a killer fails without any mutant.
pub async fn run(wanted: &[&str]) -> Result<ExitCode> {
    let mutants: Vec<Mutant> =
        all()?.into_iter().filter(|one| wanted.is_empty() || wanted.iter().any(|id| one.id.starts_with(id))).collect();
    if mutants.is_empty() {
        bail!("no mutant's id begins with {}; tests/mutants.yaml lists them", wanted.join(" or "));
    }
    let tests = build::tests(&all()?)?;
    refuse_dead_killers(&tests, &mutants).await?;
    let mut survivors = 0;
    let (mut killed, mut equivalent) = (0, 0);
    for mutant in &mutants {
        match trial::of(&tests, mutant).await? {
            Verdict::Equivalent(why) => {
                equivalent += 1;
                progress::say(format!("{}: equivalent: {why}", mutant.id));
            }
            Verdict::Killed => {
                killed += 1;
                progress::say(format!("{}: killed by {}", mutant.id, mutant.killers.join(" and ")));
            }
            Verdict::Lives { past } => {
                survivors += 1;
                progress::say(format!("{}: LIVES past {}: {}", mutant.id, past.join(" and "), mutant.what));
            }
        }
    }
    println!("mutants: {}, killed {killed}, equivalent {equivalent}", mutants.len());
    Ok(if survivors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A test that fails by itself kills every mutant, and says nothing.
async fn refuse_dead_killers(tests: &Tests, mutants: &[Mutant]) -> Result<()> {
    let killers: BTreeSet<&str> = mutants.iter().flat_map(|one| &one.killers).map(String::as_str).collect();
    let unknown: Vec<&str> = killers.iter().copied().filter(|name| !tests.have(name)).collect();
    if !unknown.is_empty() {
        bail!("tests/mutants.yaml names tests that do not exist: {}", unknown.join(", "));
    }
    let killers: Vec<String> = killers.into_iter().map(str::to_owned).collect();
    let passed = trial::passed(tests, &killers, None).await?;
    let dead: Vec<&str> = killers.iter().filter(|name| !passed.contains(*name)).map(String::as_str).collect();
    if !dead.is_empty() {
        bail!("these tests fail without any mutant, so they cannot tell one: {}", dead.join(", "));
    }
    Ok(())
}
