//! The local stack of Muster: what a newcomer's machine needs in place of the cloud.
//!
//! Nothing here is deployed. Errors are `anyhow`: their reader sits in front of the terminal.

pub mod environment;
pub mod gitlab;
pub mod migrations;
pub mod mysql;
pub mod places;
pub mod tools;
