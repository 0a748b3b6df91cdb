//! A stand-in for GitLab over a real bare Git repository.
//!
//! It speaks the paths, fields, status codes and error bodies of GitLab's REST API v4 (19.x) that the adapter uses,
//! plus the one GraphQL query it asks; commits and merges are made by the real `git`, so `git log` in the repository
//! is the truth. It is worse than GitLab on purpose: merge requests are born unprepared, arming too early answers 405,
//! and faults and knobs make answers get lost, webhooks vanish and closes lose against merges.
//!
//! What is remembered beside the repository (merge requests, pipelines) lives as long as the process.

mod actions;
mod admin;
mod admin_settings;
mod app;
mod chaos;
mod commit_view;
mod connection;
mod diffs;
mod errors;
mod faults;
mod graphql;
mod graphql_query;
mod knobs;
mod landing;
mod merge_request;
mod merging;
mod paging;
mod params;
mod payload;
mod people;
mod pipeline;
mod refresh;
mod repo;
mod routes;
mod routes_close;
mod routes_commits;
mod routes_merge;
mod routes_merge_requests;
mod routes_pipelines;
mod routes_project;
mod routes_repository;
mod scenario;
mod settings;
mod signing;
mod standin;
mod tree;
mod views;
mod webhook;
mod world;

pub use chaos::Chaos;
pub use faults::{Fault, FaultEffect};
pub use knobs::{HookStatus, Knobs};
pub use merge_request::MrState;
pub use pipeline::{PipelinePlan, Status as PipelineStatus};
pub use scenario::{Scenario, Step, When};
pub use settings::{MergeMethod, Settings, SquashOption};
pub use standin::{Options, StandIn};
pub use webhook::{Delivery, Webhook};
pub use world::{MrView, PipelineView};
