//! A command, the state it runs against, and what it makes of that state when nothing goes wrong.

use crate::course::{Command, State};
use crate::looks::Saved;
use crate::probes::Count;

/// By whom every command of an errand is given: the same one may ask again.
pub const RUNNER: &str = "runner";

pub struct Errand {
    pub command: Command,
    pub state: State,
    /// The [`World::shape`](crate::World::shape) that the command makes, done once.
    pub done: String,
    pub statements: u32,
    saved: Saved,
}

impl Errand {
    /// Prepares the state and runs the command once, to see what it does; [`Self::restore`] comes back to before.
    pub async fn new(command: Command) -> Self {
        let state = command.prepare().await;
        let saved = state.world.save().await;
        let before = state.world.shape().await;
        let count = Count::new();
        let store = state.world.store_probed(count.clone());
        command.run(store, &state, RUNNER).await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let done = state.world.shape().await;
        assert_ne!(done, before, "{command:?} was prepared to do something");
        assert_eq!(count.commits(), 1, "{command:?}");
        Self { command, state, done, statements: count.statements(), saved }
    }

    /// Brings back the state before the command, and answers it row for row.
    pub async fn restore(&self) -> String {
        self.state.world.restore(&self.saved).await;
        self.state.world.snapshot().await
    }

    /// The command once more, by the same runner, without harm.
    ///
    /// # Panics
    /// If it comes to no outcome.
    pub async fn again(&self) {
        let command = self.command;
        command.run(self.state.world.store(), &self.state, RUNNER).await.unwrap_or_else(|error| panic!("{command:?} again: {error}"));
    }

    /// # Panics
    /// Unless the command was done exactly once and no invariant is broken.
    pub async fn assert_done_once(&self, here: &str) {
        assert_eq!(self.state.world.shape().await, self.done, "{here}: it was not done exactly once");
        self.state.world.assert_invariants().await;
    }
}
