//! What a guarded transaction may do while it is open.

use std::future::Future;
use std::pin::Pin;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Error as MysqlError, Params, Row};

use crate::error::{Failure, StoreError, classify, code, duplicate_key_name};

/// A transaction as a value: its input, and how it is applied.
pub trait Guarded: Sync {
    /// Named in logs, metrics and fault plans.
    const NAME: &'static str;
    type Outcome: Send;

    fn apply(&self, tx: &mut Tx<'_>) -> impl Future<Output = Result<Decision<Self::Outcome>, StoreError>> + Send;

    /// The outcome's stable name, for logs, metrics and answers.
    fn outcome_name(outcome: &Self::Outcome) -> &'static str;
}

/// What becomes of the unit's writes.
#[derive(Debug)]
pub enum Decision<T> {
    Commit(T),
    /// Nothing is written: the database is row for row what it was.
    Refuse(T),
    /// A race was lost inside the unit. It is rolled back and run again at once; the outcome is
    /// answered only when the reruns are used up.
    Rerun(T),
}

pub fn commit<T>(outcome: T) -> Result<Decision<T>, StoreError> {
    Ok(Decision::Commit(outcome))
}

pub fn refuse<T>(outcome: T) -> Result<Decision<T>, StoreError> {
    Ok(Decision::Refuse(outcome))
}

pub fn rerun<T>(outcome: T) -> Result<Decision<T>, StoreError> {
    Ok(Decision::Rerun(outcome))
}

/// The answer of an INSERT whose duplicate is an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Inserted {
    /// With the AUTO_INCREMENT id, or 0 where the table has none.
    New(u64),
    /// The key that was taken already.
    Duplicate(String),
}

/// Where a unit stands, as a [`Probe`] sees it.
#[derive(Debug, Clone, Copy)]
pub enum Point<'a> {
    /// Before statement `n`, counted from 1.
    Statement {
        unit: &'static str,
        n: u32,
        sql: &'a str,
    },
    BeforeCommit {
        unit: &'static str,
        statements: u32,
    },
    AfterCommit {
        unit: &'static str,
        statements: u32,
    },
}

/// Watches units statement by statement. Tests pause, fail or end the process at a point of their choice.
pub trait Probe: Send + Sync {
    fn reached<'a>(&'a self, point: Point<'a>) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

    /// The text to run in place of this statement: tests take a guard away and see what dies of it.
    fn text(&self, sql: &'static str) -> &'static str {
        sql
    }
}

/// An open transaction. After any failed statement but an answered duplicate it takes no further one:
/// after 1213 the session would be in autocommit, after 1205 the earlier half would be committed.
pub struct Tx<'c> {
    conn: &'c mut Conn,
    unit: &'static str,
    resumed: bool,
    statements: u32,
    failed: bool,
    probe: Option<&'c dyn Probe>,
}

impl<'c> Tx<'c> {
    pub(crate) fn new(conn: &'c mut Conn, unit: &'static str, resumed: bool, probe: Option<&'c dyn Probe>) -> Self {
        Self { conn, unit, resumed, statements: 0, failed: false, probe }
    }

    /// An earlier COMMIT of this unit went unanswered: its own traces may already be there.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.failed
    }

    pub(crate) fn statements(&self) -> u32 {
        self.statements
    }

    /// The text to run: `sql` itself, unless a test wants another.
    async fn reach(&mut self, sql: &'static str) -> Result<&'static str, StoreError> {
        if self.failed {
            return Err(StoreError::corrupt(format!("the unit {} went on after a failed statement", self.unit)));
        }
        self.statements += 1;
        let Some(probe) = self.probe else { return Ok(sql) };
        let point = Point::Statement { unit: self.unit, n: self.statements, sql };
        probe.reached(point).await.inspect_err(|_| self.failed = true)?;
        Ok(probe.text(sql))
    }

    fn fail(&mut self, sql: &str, error: MysqlError) -> StoreError {
        self.failed = true;
        statement_error(self.unit, sql, error)
    }

    pub async fn rows<T: FromRow + Send + 'static>(
        &mut self,
        sql: &'static str,
        params: impl Into<Params> + Send,
    ) -> Result<Vec<T>, StoreError> {
        let sql = self.reach(sql).await?;
        let answer: Result<Vec<Row>, _> = self.conn.exec(sql, params.into()).await;
        match answer {
            Ok(rows) => typed(sql, rows),
            Err(error) => Err(self.fail(sql, error)),
        }
    }

    pub async fn first<T: FromRow + Send + 'static>(
        &mut self,
        sql: &'static str,
        params: impl Into<Params> + Send,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// A guarded write: the number of rows whose guard held. Every such statement raises `version`,
    /// so that a row that matched is a row that changed.
    pub async fn write(&mut self, sql: &'static str, params: impl Into<Params> + Send) -> Result<u64, StoreError> {
        let sql = self.reach(sql).await?;
        match self.conn.exec_drop(sql, params.into()).await {
            Ok(()) => Ok(self.conn.affected_rows()),
            Err(error) => Err(self.fail(sql, error)),
        }
    }

    /// A guarded write that must change exactly `expected` rows; anything else is corruption.
    pub async fn write_exactly(&mut self, expected: usize, sql: &'static str, params: impl Into<Params> + Send) -> Result<(), StoreError> {
        let changed = self.write(sql, params).await?;
        if changed == expected as u64 {
            return Ok(());
        }
        Err(StoreError::corrupt(format!("{} of {} changed {changed} rows instead of {expected}", statement_name(sql), self.unit)))
    }

    /// An INSERT whose duplicate is an answer; the transaction goes on after it.
    pub async fn insert_new(&mut self, sql: &'static str, params: impl Into<Params> + Send) -> Result<Inserted, StoreError> {
        let sql = self.reach(sql).await?;
        match self.conn.exec_drop(sql, params.into()).await {
            Ok(()) => Ok(Inserted::New(self.conn.last_insert_id().unwrap_or(0))),
            Err(MysqlError::Server(server)) if server.code == code::DUPLICATE_KEY => {
                Ok(Inserted::Duplicate(duplicate_key_name(&server.message).to_owned()))
            }
            Err(error) => Err(self.fail(sql, error)),
        }
    }
}

/// `claim.take_free_slot` of `/* claim.take_free_slot */ INSERT …`.
pub(crate) fn statement_name(sql: &str) -> &str {
    sql.trim_start().strip_prefix("/*").and_then(|rest| rest.split_once("*/")).map_or("a statement without a name", |(name, _)| name.trim())
}

pub(crate) fn statement_error(unit: &'static str, sql: &str, error: MysqlError) -> StoreError {
    match classify(&error) {
        Failure::Undone(code) => StoreError::Undone { code },
        Failure::LockWait => StoreError::LockWait,
        Failure::Connection | Failure::NoConnection => StoreError::Unreachable(error),
        Failure::Other => StoreError::Refused { unit, statement: statement_name(sql).to_owned(), source: error },
    }
}

/// Rows as values. The driver's own conversion panics on a NULL it did not expect; this one answers.
pub(crate) fn typed<T: FromRow>(sql: &str, rows: Vec<Row>) -> Result<Vec<T>, StoreError> {
    rows.into_iter()
        .map(|row| {
            T::from_row_opt(row)
                .map_err(|_| StoreError::corrupt(format!("{} read a row of another form than the code expects", statement_name(sql))))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_named_by_its_opening_comment() {
        assert_eq!(statement_name("/* claim.take_free_slot */ INSERT"), "claim.take_free_slot");
        assert_eq!(statement_name("SELECT 1"), "a statement without a name");
    }
}
