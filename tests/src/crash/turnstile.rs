//! Counts the boundaries that a process passes, writes each down, and halts the process at one of them.

use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use adapters::forge::gitlab::{CallProbe, Moment};
use rustix::process::{Signal, getpid, kill_process};
use shared::StoreError;
use shared::tx::{Point, Probe};

use super::plan::Halt;

/// What the labels of forge calls begin with.
pub const FORGE: &str = "forge: ";

#[derive(Default)]
pub struct Turnstile {
    halt: Option<(u32, Halt)>,
    met: Mutex<(u32, Option<File>)>,
}

impl Turnstile {
    pub fn new(halt: Option<(u32, Halt)>, log: &Path) -> std::io::Result<Self> {
        Ok(Self { halt, met: Mutex::new((0, Some(File::create(log)?))) })
    }

    /// One boundary. A killed process never returns from it.
    pub fn pass(&self, label: &str) {
        let here = {
            let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
            met.0 += 1;
            if let Some(log) = &mut met.1 {
                writeln!(log, "{label}").expect("the log of boundaries can be written");
            }
            met.0
        };
        if let Some((at, halt)) = self.halt
            && at == here
        {
            let signal = match halt {
                Halt::Kill => Signal::KILL,
                Halt::Freeze => Signal::STOP,
            };
            kill_process(getpid(), signal).expect("a process may signal itself");
        }
    }
}

impl Probe for Turnstile {
    fn reached<'a>(&'a self, point: Point<'a>) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>> {
        match point {
            // Between statements a transaction that dies is rolled back, which its first statement shows as well.
            Point::Statement { unit, n: 1, .. } => self.pass(&format!("{unit}: before")),
            Point::Statement { .. } => {}
            Point::BeforeCommit { unit, .. } => self.pass(&format!("{unit}: before COMMIT")),
            Point::AfterCommit { unit, .. } => self.pass(&format!("{unit}: after COMMIT")),
        }
        Box::pin(async { Ok(()) })
    }
}

impl CallProbe for Turnstile {
    fn reached(&self, call: &'static str, moment: Moment) {
        let moment = match moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        self.pass(&format!("{FORGE}{call}: {moment}"));
    }
}
