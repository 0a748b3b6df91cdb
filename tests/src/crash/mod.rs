//! Functions as real processes that are killed, or frozen, at a boundary of their course.
//!
//! A boundary is a moment before or after a transaction, its COMMIT, a call of the forge or one of the queue. They are
//! found by running the process to its end and counting: nobody lists them, so none is forgotten.

pub mod answers;
pub mod cell;
pub mod child;
pub mod matrix;
pub mod parent;
pub mod plan;
pub mod report;
pub mod spool;
pub mod story;
pub mod turnstile;
pub mod verdict;

pub use answers::Answer;
pub use cell::Cell;
pub use plan::{Function, Halt, Plan};
pub use story::Story;
