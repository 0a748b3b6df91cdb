//! The GitLab adapter against the stand-in: real HTTP, real Git, and each lie that GitLab has been seen to tell.
#![allow(clippy::unwrap_used)]

mod commits;
mod contains;
mod files;
mod journey;
mod limits;
mod merge_requests;
mod merging;
mod pipelines;
mod preflight;
mod tomorrow;
mod withdraw;
mod world;
