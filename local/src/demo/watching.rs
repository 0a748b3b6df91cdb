//! Waiting for Muster to do something, and telling what is seen meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Result, bail};
use local::progress::say;
use local::stack::Stack;
use tokio::time::{Instant, sleep};

use super::caller::Caller;

const LOOK_EVERY: Duration = Duration::from_millis(150);

pub struct Watching<'a> {
    stack: &'a Stack,
    caller: &'a Caller,
    /// What was last told of each merge request.
    told: HashMap<u64, String>,
}

impl<'a> Watching<'a> {
    pub fn new(stack: &'a Stack, caller: &'a Caller) -> Self {
        Self { stack, caller, told: HashMap::new() }
    }

    /// Waits until all operations have the wanted status.
    pub async fn until(&mut self, operations: &[String], wanted: &str, within: Duration) -> Result<()> {
        let started = Instant::now();
        let mut last = String::new();
        loop {
            self.tell_merge_requests()?;
            let statuses = self.statuses(operations).await?;
            let now = summary(&statuses);
            if now != last {
                say(format!("requests: {now}"));
                last = now;
            }
            if statuses.values().all(|status| status == wanted) {
                self.tell_merge_requests()?;
                return Ok(());
            }
            if started.elapsed() > within {
                bail!("after {within:?} the requests are not all {wanted}: {statuses:?}");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn statuses<'b>(&self, operations: &'b [String]) -> Result<BTreeMap<&'b str, String>> {
        let mut statuses = BTreeMap::new();
        for operation in operations {
            statuses.insert(operation.as_str(), self.caller.status(operation).await?);
        }
        Ok(statuses)
    }

    /// Says what the forge's merge requests have become since the last look.
    pub fn tell_merge_requests(&mut self) -> Result<()> {
        for found in self.stack.stand_in()?.merge_requests() {
            let pipeline = found.pipeline.as_ref().map_or_else(String::new, |pipeline| format!(", pipeline {}", pipeline.status));
            let now = format!("{:?}{pipeline}", found.state).to_lowercase();
            if self.told.get(&found.iid) != Some(&now) {
                say(format!("merge request !{}: {now}  \"{}\"", found.iid, found.title));
                self.told.insert(found.iid, now);
            }
        }
        Ok(())
    }
}

/// `2 IN_BATCH, 1 WAITING`
fn summary(statuses: &BTreeMap<&str, String>) -> String {
    let mut counts = BTreeMap::new();
    for status in statuses.values() {
        *counts.entry(status).or_insert(0_u32) += 1;
    }
    counts.iter().map(|(status, count)| format!("{count} {status}")).collect::<Vec<_>>().join(", ")
}
