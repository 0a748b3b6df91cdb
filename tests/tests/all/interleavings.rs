//! Every ordered pair of commands: one is stopped before each of its statements, the other runs, the first goes on.
//!
//! Both must come to an outcome and the invariants must hold. Nobody lists the interleavings, so none is forgotten.

use muster_tests::course::{Command, State};
use muster_tests::looks::Saved;
use muster_tests::probes::{At, Pause};
use muster_tests::world::be_patient;

/// Runs `first` up to each of its points in turn while `second` runs; answers how many points there were.
async fn interleave(state: &State, saved: &Saved, first: Command, second: Command) -> u32 {
    let patient = state.world.store_patient(1);
    let mut statements = 0;
    // Before its first statement a unit has neither seen nor done anything, so the points begin with the second.
    for n in 2.. {
        let at = if statements == 0 { At::Statement(n) } else { At::BeforeCommit };
        state.world.restore(saved).await;
        let pause = Pause::new(first.unit_name(), at);
        let stopped_store = state.world.store_with(|options| {
            be_patient(options);
            options.probe = Some(pause.clone());
        });
        let mut running = first.run(stopped_store, state, "first");
        let ended = tokio::select! {
            () = pause.reached() => false,
            outcome = &mut running => {
                outcome.unwrap_or_else(|error| panic!("{first:?} alone: {error}"));
                true
            }
        };
        if ended && statements == 0 {
            statements = n - 1;
            continue;
        }
        assert!(!ended, "{first:?} was prepared to commit");
        let mut other = second.run(patient.clone(), state, "second");
        let outcome = tokio::select! {
            outcome = &mut other => Some(outcome),
            () = state.world.until_somebody_waits_for_a_lock() => None,
        };
        pause.release();
        let where_ = format!("{first:?} stopped at {at:?}, {second:?} meanwhile");
        running.await.unwrap_or_else(|error| panic!("{where_}: the first failed: {error} ({error:?})"));
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => other.await,
        };
        outcome.unwrap_or_else(|error| panic!("{where_}: the second failed: {error} ({error:?})"));
        state.world.assert_invariants().await;
        if at == At::BeforeCommit {
            break;
        }
    }
    statements
}

async fn with_every_other(first: Command) {
    let state = first.prepare().await;
    let saved = state.world.save().await;
    for second in Command::OTHERS {
        let statements = interleave(&state, &saved, first, second).await;
        assert!(statements >= 3, "{first:?} ran {statements} statements only");
    }
}

macro_rules! each_first {
    ($($test:ident: $command:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $test() {
                with_every_other(Command::$command).await;
            }
        )+
    };
}

each_first!(
    an_admission_and_every_other: Admit,
    a_claim_and_every_other: Claim,
    a_render_and_every_other: RecordRender,
    a_merge_request_and_every_other: RecordMergeRequest,
    a_merge_and_every_other: Succeed,
    the_beginning_of_a_failure_and_every_other: BeginFail,
    a_failure_that_requeues_and_every_other: FailRequeueing,
    a_failure_that_rejects_and_every_other: FailRejecting,
    a_failure_that_halves_and_every_other: FailHalving,
    a_failure_on_an_operators_word_and_every_other: FailAsOrdered,
    blocking_and_every_other: Block,
    unblocking_and_every_other: Unblock,
    a_withdrawal_from_a_batch_and_every_other: WithdrawMember,
    a_withdrawal_from_the_waiting_set_and_every_other: WithdrawWaiting,
    a_late_merge_and_every_other: LateMerge,
    a_recovery_and_every_other: Recover,
    the_closing_of_a_failed_request_and_every_other: CloseFailed,
);
