//! Every ordered pair of commands: one is stopped before each of its statements, the other runs, the first goes on.
//!
//! Both must come to an outcome and the invariants must hold. Nobody lists the interleavings, so none is forgotten.

use std::future::Future;
use std::pin::Pin;

use muster_tests::deadline::{DEADLINE, within};
use muster_tests::probes::{At, Pause};
use muster_tests::world::Saved;
use muster_tests::*;
use shared::ids::{BatchId, ClaimToken, OperationId};
use shared::state::FailCause;
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::Claim;
use shared::transactions::reconcile_late_merge::ReconcileLateMerge;
use shared::transactions::record_render::{Expelled, RecordRender};
use shared::transactions::unblock::Unblock;
use shared::{Guarded, Store, StoreError};

/// Two members in a batch, one request that waits, ten seats.
struct State {
    world: World,
    batch: BatchId,
    member: OperationId,
    waiting: OperationId,
}

type Running = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Admit,
    Claim,
    RecordRender,
    RecordMergeRequest,
    Succeed,
    BeginFail,
    FailRequeueing,
    FailRejecting,
    FailHalving,
    Block,
    Unblock,
    WithdrawMember,
    WithdrawWaiting,
    LateMerge,
}

impl Command {
    /// Those that another is met by. A `fail` is one command, whatever the batch fails for.
    const OTHERS: [Self; 12] = [
        Self::Admit,
        Self::Claim,
        Self::RecordRender,
        Self::RecordMergeRequest,
        Self::Succeed,
        Self::BeginFail,
        Self::FailRequeueing,
        Self::Block,
        Self::Unblock,
        Self::WithdrawMember,
        Self::WithdrawWaiting,
        Self::LateMerge,
    ];

    /// The state in which the command has the most to do.
    async fn prepare(self) -> State {
        let world = World::new().await.with_target("db", "default", Some(10)).await;
        let member = world.admitted(grant("alice", "db")).await;
        world.admitted(grant("bob", "db")).await;
        let batch = world.claimed("round-1").await;
        let waiting = world.admitted(grant("carol", "db")).await;
        let cause = match self {
            Self::FailRequeueing | Self::LateMerge | Self::Claim => Some(FailCause::Infrastructure),
            Self::FailRejecting => Some(FailCause::Rejected),
            Self::FailHalving => Some(FailCause::Content),
            _ => None,
        };
        if let Some(cause) = cause {
            assert_eq!(world.run(&begin_fail(batch, cause)).await, SettleOutcome::Settled);
        }
        match self {
            Self::LateMerge | Self::Claim => assert_eq!(world.run(&fail(batch, "earlier")).await, SettleOutcome::Settled),
            Self::Unblock => assert_eq!(world.run(&block(batch)).await, SettleOutcome::Settled),
            _ => {}
        }
        State { world, batch, member, waiting }
    }

    fn unit_name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Claim => "claim",
            Self::RecordRender => "record_render",
            Self::RecordMergeRequest => "record_merge_request",
            Self::Succeed => "succeed",
            Self::BeginFail => "begin_fail",
            Self::FailRequeueing | Self::FailRejecting | Self::FailHalving => "fail",
            Self::Block => "block",
            Self::Unblock => "unblock",
            Self::WithdrawMember | Self::WithdrawWaiting => "withdraw",
            Self::LateMerge => "reconcile_late_merge",
        }
    }

    /// The command as it runs against this state, named after who runs it.
    fn run(self, store: Store, state: &State, by: &'static str) -> Running {
        let batch = state.batch;
        match self {
            Self::Admit => spawned(store, admit(grant("dave", "db"))),
            Self::Claim => spawned(store, Claim { token: ClaimToken::random(), ..claim("") }),
            Self::RecordRender => {
                let expelled = Expelled { operation: state.member.clone(), code: "base_mismatch", reason: "changed".to_owned() };
                spawned(store, RecordRender { by: by.to_owned(), expelled: vec![expelled], ..record_render(batch) })
            }
            Self::RecordMergeRequest => spawned(store, record_merge_request(batch, 7)),
            Self::Succeed => spawned(store, succeed(batch, by)),
            Self::BeginFail => spawned(
                store,
                shared::transactions::begin_fail::BeginFail { by: by.to_owned(), ..begin_fail(batch, FailCause::Infrastructure) },
            ),
            Self::FailRequeueing | Self::FailRejecting | Self::FailHalving => spawned(store, fail(batch, by)),
            Self::Block => spawned(store, block(batch)),
            Self::Unblock => spawned(store, Unblock { batch }),
            Self::WithdrawMember => spawned(store, withdraw(&state.member)),
            Self::WithdrawWaiting => spawned(store, withdraw(&state.waiting)),
            Self::LateMerge => spawned(store, ReconcileLateMerge { batch, by: by.to_owned(), merge_sha: "b".repeat(40) }),
        }
    }
}

fn spawned<G: Guarded + Send + 'static>(store: Store, unit: G) -> Running
where
    G::Outcome: 'static,
{
    let running = tokio::spawn(async move { store.run(&unit).await.map(drop) });
    Box::pin(async move { within(G::NAME, running).await.expect("no panic") })
}

/// Runs `first` up to each of its points in turn while `second` runs; answers how many points there were.
async fn interleave(state: &State, saved: &Saved, first: Command, second: Command) -> u32 {
    let mut statements = 0;
    // Before its first statement a unit has neither seen nor done anything, so the points begin with the second.
    for n in 2.. {
        let at = if statements == 0 { At::Statement(n) } else { At::BeforeCommit };
        state.world.restore(saved).await;
        let pause = Pause::new(first.unit_name(), at);
        let stopped_store = state.world.store_with(|options| {
            options.unit_limit = DEADLINE;
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
        let mut other = second.run(state.world.store(), state, "second");
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
    blocking_and_every_other: Block,
    unblocking_and_every_other: Unblock,
    a_withdrawal_from_a_batch_and_every_other: WithdrawMember,
    a_withdrawal_from_the_waiting_set_and_every_other: WithdrawWaiting,
    a_late_merge_and_every_other: LateMerge,
);
