//! Muster's guarded transactions: everything that may change state, and nothing that can reach out.
//!
//! This crate knows neither AWS nor HTTP, so a transaction cannot wait for a forge or a queue while
//! it holds a lock. An intended effect is an outbox row, written in the transaction that causes it.

pub mod audit;
pub mod decide;
mod dialect;
pub mod error;
pub mod ids;
pub mod moment;
pub mod outbox;
pub mod paths;
pub mod read;
pub mod request;
pub mod state;
pub mod store;
pub mod transactions;
pub mod tx;

pub use error::StoreError;
pub use store::{Store, StoreOptions};
pub use tx::{Decision, Guarded, Tx, commit, refuse, rerun};
