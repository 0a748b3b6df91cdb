//! Plain reads, on autocommit and without locks.

pub mod batches;
pub mod breaches;
pub mod doctor;
pub mod expiry;
pub mod failed;
pub mod ops_show;
pub mod partitions;
pub mod plan;
pub mod requests;
pub mod round;
pub mod status;
pub mod targets;
pub mod view;
pub mod waiting;
pub mod why;
