//! The local stack of Muster: what a newcomer's machine needs in place of the cloud.
//!
//! Nothing here is deployed. Errors are `anyhow`: their reader sits in front of the terminal.

pub mod cloud;
pub mod environment;
pub mod functions;
pub mod gitlab;
pub mod glab;
pub mod interrupt;
pub mod migrations;
pub mod mutants;
pub mod mysql;
pub mod places;
pub mod progress;
pub mod stack;
mod supervised;
pub mod tools;
