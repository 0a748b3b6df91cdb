//! All integration tests in one binary: each further one would link everything below once more.

mod admit;
mod admit_races;
mod admit_refusals;
mod claim;
mod journeys;
mod ops;
