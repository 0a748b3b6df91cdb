//! Proves on the live database what the guarded transactions stand on: constraints, session, server.

mod blueprint;
mod schema;
mod server;

use serde::Serialize;

use crate::error::StoreError;
use crate::store::Store;
use crate::tx::{Decision, Guarded, Tx, refuse};

pub use server::{ServerFacts, judge as judge_server};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is about: `schema.keys`, `session.isolation`, …
    pub name: String,
    pub ok: bool,
    /// What is wrong and what it means; `null` where all is well.
    pub problem: Option<String>,
    pub todo: Option<String>,
}

impl Check {
    pub fn passed(name: impl Into<String>) -> Self {
        Self { name: name.into(), ok: true, problem: None, todo: None }
    }

    pub fn failed(name: impl Into<String>, problem: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { name: name.into(), ok: false, problem: Some(problem.into()), todo: Some(todo.into()) }
    }

    /// Passed where there is no problem, else failed once for each.
    pub fn all(name: &str, problems: Vec<String>, todo: &str) -> Vec<Self> {
        if problems.is_empty() {
            return vec![Self::passed(name)];
        }
        problems.into_iter().map(|problem| Self::failed(name, problem, todo)).collect()
    }
}

/// Everything that the database alone can answer.
pub async fn examine(store: &Store) -> Result<Vec<Check>, StoreError> {
    let mut checks = schema::examine(store).await?;
    checks.extend(server::examine(store).await?);
    let probe = ProbeAffectedRows { key: format!("doctor:{:032x}", rand::random::<u128>()) };
    checks.push(match store.run(&probe).await {
        Ok(changed) => judge_affected_rows(changed),
        Err(error) if error.is_fault() => return Err(error),
        // The table itself is not what it should be, and that is told above.
        Err(error) => Check::failed("session.affected_rows", format!("it could not be probed: {error}"), "mend the schema, then ask again"),
    });
    Ok(checks)
}

/// An UPDATE that changes nothing must answer 0: guards count what changed, not what matched.
pub fn judge_affected_rows(changed: u64) -> Check {
    if changed == 0 {
        return Check::passed("session.affected_rows");
    }
    Check::failed(
        "session.affected_rows",
        "the server counts matched rows and not changed ones (found-rows mode), so a guard may take a lost race for a won one",
        "remove client_found_rows, or a proxy that sets CLIENT_FOUND_ROWS, from between Muster and the database",
    )
}

/// Writes a row, changes nothing in it, and rolls both back.
///
/// Guard: none. Refusal: always. Locks: the row it wrote.
struct ProbeAffectedRows {
    key: String,
}

const INSERT_PROBE: &str = "/* doctor.insert_probe */ INSERT INTO audit_record (dedup_key, action, actor) VALUES (?, 'doctor', 'muster')";

const CHANGE_NOTHING: &str = "/* doctor.change_nothing */ UPDATE audit_record SET action = 'doctor' WHERE dedup_key = ?";

impl Guarded for ProbeAffectedRows {
    const NAME: &'static str = "doctor";
    /// Rows that the UPDATE answered.
    type Outcome = u64;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<u64>, StoreError> {
        tx.write_exactly(1, INSERT_PROBE, (&self.key,)).await?;
        let changed = tx.write(CHANGE_NOTHING, (&self.key,)).await?;
        refuse(changed)
    }

    fn outcome_name(_: &u64) -> &'static str {
        "probed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_counts_matched_rows_is_named() {
        assert!(judge_affected_rows(0).ok);
        assert!(judge_affected_rows(1).problem.is_some_and(|problem| problem.contains("found-rows")));
    }
}
