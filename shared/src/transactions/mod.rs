//! One file, one guarded transaction.

pub mod admit;
pub mod batch_row;
pub mod begin_fail;
pub mod block;
pub mod claim;
pub mod close_failed;
pub mod command;
pub mod commanded;
pub mod deliveries;
pub mod fail;
pub mod members;
pub mod note_progress;
pub mod pause;
pub mod purge;
pub mod rearm;
pub mod reconcile_late_merge;
pub mod record_command;
pub mod record_merge_request;
pub mod record_render;
pub mod recover;
pub mod seats;
pub mod set_partition;
pub mod set_target;
pub mod succeed;
pub mod unblock;
pub mod withdraw;
