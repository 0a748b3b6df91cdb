//! What a process is told: which function it is, what it is given, and where it stops for good.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The variable that holds the plan.
pub const VARIABLE: &str = "MUSTER_CRASH_PLAN";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Function {
    Admit,
    ClaimRound,
    Settle,
    Sweep,
    Ops,
}

/// How the process ends its course at a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Halt {
    /// SIGKILL, as the kernel or an operator sends it.
    Kill,
    /// SIGSTOP, as Lambda freezes a sandbox.
    Freeze,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub function: Function,
    /// What the function is invoked with.
    pub event: Value,
    pub database_url: String,
    /// Assignments for its sessions: its clock, where that is elsewhere.
    pub session: Vec<String>,
    pub gitlab_url: String,
    pub call_timeout_ms: u64,
    /// Every boundary that it met, one per line.
    pub log: PathBuf,
    /// What it published, one JSON object per line.
    pub spool: PathBuf,
    /// Boundaries are counted from 1.
    pub halt: Option<(u32, Halt)>,
}
