//! Ctrl-C and SIGTERM.

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From its making on, both signals no longer end the process; they are told to whoever waits.
#[derive(Debug)]
pub struct Interrupts {
    interrupts: Signal,
    terminations: Signal,
}

/// Which of the two came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Ctrl-C: a terminal sends it to our children as well.
    FromTerminal,
    /// SIGTERM, sent to us alone.
    Termination,
}

impl Interrupts {
    /// # Errors
    /// If the system refuses to tell of signals.
    pub fn catch() -> Result<Self> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt()).context("Ctrl-C cannot be caught")?,
            terminations: signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupts.recv() => Interrupt::FromTerminal,
            _ = self.terminations.recv() => Interrupt::Termination,
        }
    }
}

impl Interrupt {
    /// With what a shell reports a program that this has ended: 128 + the number of the signal.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::FromTerminal => 130,
            Self::Termination => 143,
        }
    }
}
