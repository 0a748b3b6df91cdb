//! All integration tests in one binary: each further one would link everything below once more.

mod admit;
mod admit_races;
mod admit_refusals;
mod claim;
mod claim_races;
mod deliveries;
mod http;
mod http_reads;
mod http_requests;
mod http_samples;
mod journeys;
mod lost_commit;
mod never_blocked;
mod ops;
mod record;
mod runner;
mod settle;
mod stale_writes;
mod withdraw;
