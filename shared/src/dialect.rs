//! All that MySQL and MariaDB spell differently. Everything else is SQL that both of them read alike.
//!
//! Each spelling stands in a comment that only its own server executes: `/*!80016 … */` is MySQL's, from 8.0.16 on,
//! and `/*M!100600 … */` is MariaDB's, from 10.6 on. So one text serves both, and nobody asks which server it is.

/// The session's isolation level, to be set.
#[macro_export]
macro_rules! isolation_variable {
    () => {
        "/*!80016 transaction_isolation *//*M!100600 tx_isolation */"
    };
}

/// The session's isolation level, to be read.
#[macro_export]
macro_rules! isolation_of_session {
    () => {
        "/*!80016 @@SESSION.transaction_isolation *//*M!100600 @@SESSION.tx_isolation */"
    };
}

/// Of a row of `information_schema.statistics`: the key is kept, and statements that name it fail.
#[macro_export]
macro_rules! key_is_invisible {
    () => {
        "/*!80016 is_visible = 'NO' *//*M!100600 ignored = 'YES' */"
    };
}

/// Of a row of `information_schema.table_constraints`: the CHECK is kept, and refuses nothing. MySQL switches one off,
/// MariaDB all of a session's.
#[macro_export]
macro_rules! check_is_not_enforced {
    () => {
        "/*!80016 enforced = 'NO' *//*M!100600 @@check_constraint_checks = 0 */"
    };
}
