//! The session and the server as the guarded transactions need them.

use serde::Deserialize;

use super::Check;
use crate::error::StoreError;
use crate::read::view::from_json;
use crate::store::Store;

/// What the server says of itself and of a session of the store's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServerFacts {
    pub isolation: String,
    pub time_zone: String,
    pub sql_mode: String,
    /// Seconds.
    pub lock_wait_timeout: u64,
    /// Seconds.
    pub wait_timeout: u64,
    pub unique_checks: u64,
    pub read_only: u64,
    pub log_bin: u64,
    pub binlog_format: String,
    pub autocommit: u64,
    /// 1: written to the disk at each COMMIT.
    pub flush_log: u64,
}

/// `+ 0` makes a number of what MariaDB otherwise spells ON and OFF.
const READ_FACTS: &str = concat!(
    "/* doctor.read_facts */ SELECT JSON_OBJECT('isolation', ",
    crate::isolation_of_session!(),
    ", 'time_zone', @@SESSION.time_zone, 'sql_mode', @@SESSION.sql_mode, 'lock_wait_timeout', @@SESSION.innodb_lock_wait_timeout, \
    'wait_timeout', @@SESSION.wait_timeout, 'unique_checks', @@SESSION.unique_checks + 0, 'read_only', @@GLOBAL.read_only + 0, \
    'log_bin', @@GLOBAL.log_bin + 0, 'binlog_format', @@SESSION.binlog_format, 'autocommit', @@SESSION.autocommit + 0, \
    'flush_log', @@GLOBAL.innodb_flush_log_at_trx_commit)"
);

const LOCK_WAIT_MAX_S: u64 = 5;
const WAIT_TIMEOUT_MAX_S: u64 = 30;

/// Below this a connection that the store keeps for 8 s may be gone when it is used.
const WAIT_TIMEOUT_MIN_S: u64 = 10;

pub async fn examine(store: &Store) -> Result<Vec<Check>, StoreError> {
    let Some((facts,)) = store.first::<(String,)>(READ_FACTS, ()).await? else {
        return Err(StoreError::corrupt("the server does not tell its settings"));
    };
    Ok(judge(&from_json("doctor.read_facts", &facts)?))
}

const SET_BY_STORE: &str = "Muster sets it itself at each connection: look for a proxy or an init_connect that changes it afterwards";

/// One check for each setting, whatever the others are.
pub fn judge(facts: &ServerFacts) -> Vec<Check> {
    let one = |name: &str, is_right: bool, problem: String, todo: &str| {
        if is_right { Check::passed(name) } else { Check::failed(name, problem, todo) }
    };
    vec![
        one(
            "session.isolation",
            facts.isolation == "READ-COMMITTED",
            format!("the session reads at {}, whose gap locks let rounds and admissions block one another", facts.isolation),
            SET_BY_STORE,
        ),
        one(
            "session.time_zone",
            facts.time_zone == "+00:00",
            format!("the session's time zone is {}, so its times are not those of the other sessions", facts.time_zone),
            SET_BY_STORE,
        ),
        one(
            "session.sql_mode",
            facts.sql_mode.contains("STRICT_ALL_TABLES"),
            format!("the sql_mode {:?} is not strict, so a value that does not fit is cut and not refused", facts.sql_mode),
            SET_BY_STORE,
        ),
        one(
            "session.lock_wait_timeout",
            (1..=LOCK_WAIT_MAX_S).contains(&facts.lock_wait_timeout),
            format!("a lock is waited for {} s, longer than a unit may last", facts.lock_wait_timeout),
            SET_BY_STORE,
        ),
        one(
            "session.wait_timeout",
            (WAIT_TIMEOUT_MIN_S..=WAIT_TIMEOUT_MAX_S).contains(&facts.wait_timeout),
            format!(
                "a silent session is ended after {} s: a frozen one keeps its locks too long, or a kept one dies too soon",
                facts.wait_timeout
            ),
            SET_BY_STORE,
        ),
        one(
            "session.unique_checks",
            facts.unique_checks == 1,
            "unique_checks is off, so a duplicate in a unique key may pass, and with it a second active batch".to_owned(),
            "set unique_checks to 1, globally and wherever sessions are set up",
        ),
        one(
            "session.autocommit",
            facts.autocommit == 1,
            "autocommit is off, so a plain read keeps a transaction open and sees the past".to_owned(),
            "set autocommit to 1, globally and in init_connect",
        ),
        one(
            "server.writable",
            facts.read_only == 0,
            "the server is read-only: it is a replica, or it was demoted, and nothing can be written".to_owned(),
            "let DATABASE_URL name the writer",
        ),
        one(
            "server.binlog_format",
            facts.log_bin == 0 || facts.binlog_format == "ROW",
            format!(
                "the binary log is written as {}, which READ COMMITTED does not allow or replicas replay otherwise",
                facts.binlog_format
            ),
            "set binlog_format to ROW",
        ),
        one(
            "server.durable",
            facts.flush_log == 1,
            format!("innodb_flush_log_at_trx_commit is {}, so a COMMIT that was answered may be lost with the server", facts.flush_log),
            "set innodb_flush_log_at_trx_commit to 1",
        ),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn right() -> ServerFacts {
        ServerFacts {
            isolation: "READ-COMMITTED".into(),
            time_zone: "+00:00".into(),
            sql_mode: "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION".into(),
            lock_wait_timeout: 3,
            wait_timeout: 10,
            unique_checks: 1,
            read_only: 0,
            log_bin: 1,
            binlog_format: "ROW".into(),
            autocommit: 1,
            flush_log: 1,
        }
    }

    fn failing(change: impl FnOnce(&mut ServerFacts)) -> Vec<String> {
        let mut facts = right();
        change(&mut facts);
        judge(&facts).into_iter().filter(|check| !check.ok).map(|check| check.name).collect()
    }

    #[test]
    fn each_wrong_setting_is_named_and_no_other() {
        assert!(failing(|_| ()).is_empty());
        assert_eq!(failing(|facts| facts.read_only = 1), ["server.writable"]);
        assert_eq!(failing(|facts| facts.binlog_format = "STATEMENT".into()), ["server.binlog_format"]);
        assert!(failing(|facts| (facts.binlog_format, facts.log_bin) = ("STATEMENT".into(), 0)).is_empty());
        assert_eq!(failing(|facts| facts.flush_log = 2), ["server.durable"]);
        assert_eq!(failing(|facts| facts.isolation = "REPEATABLE-READ".into()), ["session.isolation"]);
        assert_eq!(failing(|facts| facts.autocommit = 0), ["session.autocommit"]);
        assert_eq!(failing(|facts| facts.wait_timeout = 28_800), ["session.wait_timeout"]);
        assert_eq!(failing(|facts| facts.wait_timeout = 5), ["session.wait_timeout"]);
    }
}
