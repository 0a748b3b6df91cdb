//! A unit made of single statements, to test the runner with.

use shared::tx::Inserted;
use shared::{Decision, Guarded, StoreError, Tx, commit, refuse};

/// One statement of a [`Steps`] unit.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Must change one row.
    Write(&'static str),
    /// A duplicate is an answer.
    InsertNew(&'static str),
    /// A number, or corruption where the row holds none.
    Read(&'static str),
    /// Its error is swallowed: what no unit may do.
    Swallow(&'static str),
    Refuse,
}

/// Runs its steps in order and commits; the outcome is one word for each.
#[derive(Debug, Clone)]
pub struct Steps(pub Vec<Step>);

impl Guarded for Steps {
    const NAME: &'static str = "steps";
    type Outcome = Vec<String>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<Vec<String>>, StoreError> {
        let mut answers = Vec::new();
        for step in &self.0 {
            answers.push(match *step {
                Step::Write(sql) => tx.write_exactly(1, sql, ()).await.map(|()| "written".to_owned())?,
                Step::InsertNew(sql) => match tx.insert_new(sql, ()).await? {
                    Inserted::New(_) => "new".to_owned(),
                    Inserted::Duplicate(key) => format!("duplicate of {key}"),
                },
                Step::Read(sql) => tx.first::<(i64,)>(sql, ()).await?.map_or("nothing".to_owned(), |(number,)| number.to_string()),
                Step::Swallow(sql) => tx.write(sql, ()).await.map_or_else(|error| error.to_string(), |_| "written".to_owned()),
                Step::Refuse => return refuse(answers),
            });
        }
        commit(answers)
    }

    fn outcome_name(_: &Vec<String>) -> &'static str {
        "any"
    }
}
