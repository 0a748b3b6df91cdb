//! Error numbers that tests expect; the two servers number some of them differently.

pub const DUPLICATE: u16 = 1062;

/// A row that a CHECK refuses: MySQL's number and MariaDB's.
pub fn is_check_violation(code: u16) -> bool {
    matches!(code, 3819 | 4025)
}

/// A value written into a generated column.
pub fn is_write_to_generated(code: u16) -> bool {
    matches!(code, 3105 | 1906)
}

/// Whether the message of a broken CHECK names this one. MySQL quotes it one way, MariaDB another.
pub fn names_check(message: &str, check: &str) -> bool {
    message.contains(&format!("'{check}'")) || message.contains(&format!("`{check}`"))
}
