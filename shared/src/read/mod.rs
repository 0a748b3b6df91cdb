//! Plain reads, on autocommit and without locks.

pub mod round;
pub mod status;
pub mod waiting;
