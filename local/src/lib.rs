//! The local stack of Muster: what a newcomer's machine needs in place of the cloud.
//!
//! Nothing here is deployed. Errors are `anyhow`: their reader sits in front of the terminal.

pub mod cloud;
pub mod environment;
pub mod functions;
pub mod gitlab;
pub mod migrations;
pub mod mysql;
pub mod places;
mod supervised;
pub mod tools;
