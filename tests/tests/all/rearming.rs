//! An effect is ordered anew only in the state that wants it, and only while none of its kind is pending.

use muster_tests::*;
use shared::ids::BatchId;
use shared::state::FailCause;
use shared::transactions::rearm::{Anew, Rearm, RearmOutcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Blocked,
    Failing,
    Succeeded,
}

/// A batch with a merge request in this state, all of whose effects have been performed.
async fn in_state(state: State) -> (World, BatchId) {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    let _ = world.run(&record_merge_request(batch, 7)).await;
    let _ = match state {
        State::Running => return delivered(world, batch).await,
        State::Blocked => world.run(&block(batch)).await,
        State::Failing => world.run(&begin_fail(batch, FailCause::Infrastructure)).await,
        State::Succeeded => world.run(&succeed(batch, "settler")).await,
    };
    delivered(world, batch).await
}

async fn delivered(world: World, batch: BatchId) -> (World, BatchId) {
    world.sql("UPDATE outbox SET delivered_at = CURRENT_TIMESTAMP(6)", ()).await;
    (world, batch)
}

#[tokio::test]
async fn an_effect_is_ordered_anew_only_in_the_state_that_wants_it() {
    let wanted = [(Anew::Arm, State::Running), (Anew::Disarm, State::Blocked), (Anew::Withdraw { iid: 7 }, State::Failing)];
    for (effect, its_state) in wanted {
        for state in [State::Running, State::Blocked, State::Failing, State::Succeeded] {
            let (world, batch) = in_state(state).await;
            let before = world.snapshot().await;
            let outcome = world.run(&Rearm { batch, effect }).await;
            if state == its_state {
                assert_eq!(outcome, RearmOutcome::Rearmed, "{effect:?} of {state:?}");
                let pending = world.snapshot().await;
                assert_ne!(pending, before);
                // It is pending now.
                assert_eq!(world.run(&Rearm { batch, effect }).await, RearmOutcome::NotNeeded, "{effect:?} twice");
                assert_eq!(world.snapshot().await, pending);
            } else {
                assert_eq!(outcome, RearmOutcome::NotNeeded, "{effect:?} of {state:?}");
                assert_eq!(world.snapshot().await, before);
            }
        }
    }
}
