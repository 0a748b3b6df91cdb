//! Decisions as pure functions: what they read is their arguments, what they do is their result.

pub mod bisect;
pub mod claim_set;
pub mod render;
pub mod settlement;
