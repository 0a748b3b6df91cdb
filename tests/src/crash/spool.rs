//! A queue that outlives the processes: one file, to which each event is appended.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adapters::outbound::Outbound;
use serde_json::{Value, json};
use shared::ids::PartitionKey;

use super::turnstile::Turnstile;

pub struct Spool {
    path: PathBuf,
    turnstile: Arc<Turnstile>,
}

impl Spool {
    pub fn new(path: &Path, turnstile: Arc<Turnstile>) -> Self {
        Self { path: path.to_owned(), turnstile }
    }

    fn append(&self, lines: &str) -> Result<(), String> {
        let appending = || OpenOptions::new().create(true).append(true).open(&self.path)?.write_all(lines.as_bytes());
        appending().map_err(|why: std::io::Error| why.to_string())
    }
}

impl Outbound for Spool {
    async fn publish(&self, events: &[(String, String)]) -> Result<Vec<Result<(), String>>, String> {
        self.turnstile.pass("queue: publish: before");
        let lines: String = events.iter().map(|(_, body)| format!("{body}\n")).collect();
        self.append(&lines)?;
        self.turnstile.pass("queue: publish: after");
        Ok(vec![Ok(()); events.len()])
    }

    async fn start_round(&self, partition: &PartitionKey) -> Result<(), String> {
        self.turnstile.pass("queue: start a round: before");
        self.append(&format!("{}\n", json!({ "type": "start_round", "partition": partition })))?;
        self.turnstile.pass("queue: start a round: after");
        Ok(())
    }

    async fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Every event so far, those that were published twice as often as they were.
pub fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("an event is one line of JSON")).collect()
}
