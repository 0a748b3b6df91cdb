//! Faults and corruption. What a correct system can meet on a quiet day is an outcome, not an error.

use mysql_async::{DriverError, Error as MysqlError};

/// Server error numbers that a rule of ours names.
pub mod code {
    pub const DUPLICATE_KEY: u16 = 1062;
    pub const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub const DEADLOCK: u16 = 1213;
    /// MariaDB: the row changed since the snapshot; the whole transaction is gone.
    pub const RECORD_CHANGED: u16 = 1020;
    /// Group replication refused the transaction at COMMIT.
    pub const CERTIFICATION_FAILED: u16 = 3101;
    pub const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
    pub const NO_CONNECTION_LEFT: [u16; 3] = [1040, 1203, 1226];
    pub const ACCESS_DENIED: u16 = 1045;
}

/// Why a unit could not be decided.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The whole unit is gone and the same unit may succeed: 1213, 1020, 3101.
    #[error(
        "the database undid this unit in favour of another (error {code}) more often than it is retried; nothing was written, try again"
    )]
    Undone { code: u16 },
    /// A lock was not given in time (1205); the unit was rolled back.
    #[error("a row stayed locked for longer than the lock wait limit; nothing was written, try again")]
    LockWait,
    /// The connection broke, or no connection could be had.
    #[error("the database could not be reached; nothing is known to be lost, try again")]
    Unreachable(#[source] MysqlError),
    /// The connection broke while COMMIT was under way, and asking again did not answer it either.
    #[error("the connection broke during COMMIT; the unit is complete or absent, and asking again with the same token tells which")]
    CommitUnknown(#[source] MysqlError),
    /// The unit did not end within its limit; its connection was dropped, so the server rolls it back.
    #[error("the unit {unit} did not end within {limit_ms} ms; its connection was dropped, try again")]
    TimeLimit { unit: &'static str, limit_ms: u64 },
    /// A statement that no rule covers failed: code or schema must be looked at.
    #[error("the database refused the statement {statement} of {unit}; nothing was written, and the code or the schema must be looked at")]
    Refused {
        unit: &'static str,
        statement: String,
        #[source]
        source: MysqlError,
    },
    /// What the database holds contradicts an invariant: alarmed, never looped on.
    #[error("the stored state contradicts itself: {0}; nothing was written, run the audit")]
    Corrupt(String),
}

impl StoreError {
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }

    /// Is the database itself away, so that nothing else can work now either?
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::CommitUnknown(_))
    }

    /// Would the same command help if it were tried again later?
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Corrupt(_))
    }
}

/// What one failed statement means for the unit it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Undone(u16),
    LockWait,
    /// The connection is of no more use: broken, or its server has been demoted.
    Connection,
    /// The server has no connection left for us.
    NoConnection,
    Other,
}

pub(crate) fn classify(error: &MysqlError) -> Failure {
    match error {
        MysqlError::Server(server) => match server.code {
            code::DEADLOCK | code::RECORD_CHANGED | code::CERTIFICATION_FAILED => Failure::Undone(server.code),
            code::LOCK_WAIT_TIMEOUT => Failure::LockWait,
            number if code::READ_ONLY.contains(&number) => Failure::Connection,
            number if code::NO_CONNECTION_LEFT.contains(&number) => Failure::NoConnection,
            // The server kills a connection in mid-use: shutdown, KILL, wait_timeout.
            1053 | 1077 | 1317 | 1927 | 3169 | 4031 => Failure::Connection,
            _ => Failure::Other,
        },
        MysqlError::Io(_) => Failure::Connection,
        MysqlError::Driver(DriverError::ConnectionClosed | DriverError::PoolDisconnected) => Failure::Connection,
        MysqlError::Driver(_) | MysqlError::Other(_) | MysqlError::Url(_) => Failure::Other,
    }
}

/// Name of the key in the text of a duplicate-key error, without the table that MySQL puts before it.
pub(crate) fn duplicate_key_name(message: &str) -> &str {
    let quoted = message.trim_end_matches('\'');
    let name = quoted.rsplit('\'').next().unwrap_or(quoted);
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_duplicate_is_named_alike_on_both_servers() {
        assert_eq!(duplicate_key_name("Duplicate entry 'default-1' for key 'merge_batch.uk_active_slot'"), "uk_active_slot");
        assert_eq!(duplicate_key_name("Duplicate entry 'default-1' for key 'uk_active_slot'"), "uk_active_slot");
    }
}
