//! What the integration tests stand on: a real database of their own, the states they begin in, and the
//! faults they put in the way.
//!
//! Panics are the errors of a test: each says what was expected and what was there.

pub mod codes;
pub mod commands;
pub mod course;
pub mod crash;
pub mod deadline;
pub mod errand;
pub mod existing;
pub mod journey;
pub mod lease;
pub mod looks;
pub mod mutated;
pub mod probes;
pub mod process;
pub mod proxy;
pub mod rows;
pub mod shape;
pub mod statements;
pub mod steps;
pub mod waits;
pub mod world;

pub use commands::*;
pub use world::World;
