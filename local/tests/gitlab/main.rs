//! The GitLab stand-in, driven over HTTP as the adapter drives it; `git log` in its repository has the last word.

#![allow(clippy::unwrap_used)] // A test says what went wrong by failing.

mod admin;
mod cycle;
mod faults;
mod forge;
mod graphql;
mod races;
mod reads;
mod refusals;
mod settings;
mod trouble;
mod webhooks;
