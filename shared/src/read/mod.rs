//! Plain reads, on autocommit and without locks.

pub mod partitions;
pub mod round;
pub mod status;
pub mod targets;
pub mod waiting;
