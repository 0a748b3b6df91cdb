//! Before every statement of every command, and at its COMMIT, something fails: the command is then done once or not at all.
//!
//! Nobody lists the points: a first run counts the statements. The network between the command and the server does the
//! harm, so the server's side of it is real: after 1213 the transaction is gone and the session in autocommit, after 1205
//! the transaction is open, after a cut nobody knows what was carried out.

use muster_tests::course::Command;
use muster_tests::deadline::until;
use muster_tests::errand::{Errand, RUNNER};
use muster_tests::probes::{At, Pause};
use muster_tests::proxy::{Cut, Harm, Moment};
use muster_tests::world::be_patient;
use shared::StoreError;

/// What may happen instead of a statement's answer. 1290: the server was demoted and writes no more.
const AT_A_STATEMENT: [Harm; 5] =
    [Harm::Refused(1213), Harm::Refused(1205), Harm::Refused(1290), Harm::Cut(Cut::BeforeServer), Harm::Cut(Cut::AfterServer)];
/// And instead of a COMMIT's. 3101: a group of servers did not certify it; 1180: no rule of ours names it.
const AT_COMMIT: [Harm; 5] =
    [Harm::Refused(1213), Harm::Refused(3101), Harm::Refused(1180), Harm::Cut(Cut::BeforeServer), Harm::Cut(Cut::AfterServer)];

async fn meets(errand: &Errand, moment: Moment, harm: Harm) {
    let (world, command) = (&errand.state.world, errand.command);
    let here = format!("{command:?} of {} statements meets {harm:?} at {moment:?}", errand.statements);
    let before = errand.restore().await;
    let (store, proxy) = world.store_harmed(moment, harm, 1, be_patient).await;
    let outcome = command.run(store, &errand.state, RUNNER).await;
    assert_eq!(proxy.left(), 0, "{here}: it met nothing");
    match (harm, outcome) {
        (Harm::Refused(1205), Err(StoreError::LockWait)) | (Harm::Refused(1180), Err(StoreError::Refused { .. })) => {
            assert_eq!(world.snapshot().await, before, "{here}: a failure left something");
            errand.again().await;
        }
        (Harm::Refused(1205 | 1180), other) => panic!("{here}: it came to {other:?}"),
        (_, Err(error)) => panic!("{here}: {error} ({error:?})"),
        // Its own abandoned transaction may still hold the gate, and a claim never waits for that: it is asked again.
        (Harm::Cut(_) | Harm::Reset | Harm::Refused(1290), Ok(())) if command == Command::Claim => {
            until("a claim that is not contended", async || {
                let is_same = world.snapshot().await == before;
                if is_same {
                    errand.again().await;
                }
                (!is_same).then_some(())
            })
            .await;
        }
        (_, Ok(())) => {}
    }
    errand.assert_done_once(&here).await;
}

/// While the unit stands nobody sees any of it.
async fn pauses(errand: &Errand, at: At) {
    let (world, command) = (&errand.state.world, errand.command);
    let before = errand.restore().await;
    let pause = Pause::new(command.unit_name(), at);
    let running = tokio::spawn(command.run(world.store_probed(pause.clone()), &errand.state, RUNNER));
    pause.reached().await;
    assert_eq!(world.snapshot().await, before, "{command:?} standing at {at:?} shows what is not committed");
    world.assert_invariants().await;
    pause.release();
    running.await.expect("no panic").unwrap_or_else(|error| panic!("{command:?} after it stood at {at:?}: {error}"));
    errand.assert_done_once(&format!("{command:?} after it stood at {at:?}")).await;
}

/// Every point of a command's course, and every harm at it.
async fn sweep(command: Command) {
    let errand = Errand::new(command).await;
    errand.again().await;
    errand.assert_done_once(&format!("{command:?} given twice, because its answer was not heard")).await;
    // A reset is another error of the network than an end; it is met in the middle.
    meets(&errand, Moment::Statement(errand.statements.div_ceil(2)), Harm::Reset).await;
    let mut faults = 1;
    for n in 1..=errand.statements {
        for harm in AT_A_STATEMENT {
            meets(&errand, Moment::Statement(n), harm).await;
            faults += 1;
        }
        pauses(&errand, At::Statement(n)).await;
        faults += 1;
    }
    for harm in AT_COMMIT {
        meets(&errand, Moment::Commit, harm).await;
        faults += 1;
    }
    pauses(&errand, At::BeforeCommit).await;
    println!("counted: fault sweep: {command:?}: {} statements, {} faults survived", errand.statements, faults + 1);
}

macro_rules! each {
    ($($test:ident: $command:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $test() {
                sweep(Command::$command).await;
            }
        )+
    };
}

each!(
    an_admission_is_done_once_or_not_at_all: Admit,
    a_claim_is_done_once_or_not_at_all: Claim,
    a_render_is_recorded_once_or_not_at_all: RecordRender,
    a_merge_request_is_recorded_once_or_not_at_all: RecordMergeRequest,
    a_merge_is_settled_once_or_not_at_all: Succeed,
    a_failure_is_begun_once_or_not_at_all: BeginFail,
    a_failure_that_requeues_is_settled_once_or_not_at_all: FailRequeueing,
    a_failure_that_rejects_is_settled_once_or_not_at_all: FailRejecting,
    a_failure_that_halves_is_settled_once_or_not_at_all: FailHalving,
    a_failure_by_order_is_settled_once_or_not_at_all: FailAsOrdered,
    a_batch_is_blocked_once_or_not_at_all: Block,
    a_batch_is_unblocked_once_or_not_at_all: Unblock,
    a_member_is_withdrawn_once_or_not_at_all: WithdrawMember,
    a_waiting_request_is_withdrawn_once_or_not_at_all: WithdrawWaiting,
    a_late_merge_is_reconciled_once_or_not_at_all: LateMerge,
    a_request_is_recovered_once_or_not_at_all: Recover,
    a_failed_request_is_closed_once_or_not_at_all: CloseFailed,
);

#[test]
fn no_command_is_left_out() {
    for source in [include_str!("fault_sweep.rs"), include_str!("killed.rs")] {
        let listed = |command: &Command| source.contains(&format!("_at_all: {command:?},"));
        assert!(Command::ALL.iter().all(listed), "a command without a sweep of its own");
    }
}

#[tokio::test]
async fn every_command_does_the_same_where_the_server_counts_matched_rows() {
    // ProxySQL sets the flag by itself. Each guarded write raises `version`, so what it matches it changes.
    for command in Command::ALL {
        let errand = Errand::new(command).await;
        errand.restore().await;
        let (store, proxy) = errand.state.world.store_harmed(Moment::Handshake, Harm::FoundRows, 1, be_patient).await;
        for turn in ["done", "given twice"] {
            command.run(store.clone(), &errand.state, RUNNER).await.unwrap_or_else(|error| panic!("{command:?} {turn}: {error}"));
            errand.assert_done_once(&format!("{command:?} {turn} where matched rows are counted")).await;
        }
        assert_eq!(proxy.left(), 0, "{command:?}: the flag was not set");
    }
}

#[tokio::test]
async fn a_server_without_room_for_prepared_statements_is_named_and_nothing_is_written() {
    let errand = Errand::new(Command::Claim).await;
    let before = errand.restore().await;
    let (store, proxy) = errand.state.world.store_harmed(Moment::Prepare, Harm::Refused(1461), 1, be_patient).await;
    let error = Command::Claim.run(store.clone(), &errand.state, RUNNER).await.expect_err("no statement can be prepared");
    assert!(matches!(&error, StoreError::Refused { statement, .. } if statement == "claim.lock_free_gate"), "{error:?}");
    assert!(!error.is_fault() && proxy.left() == 0);
    assert_eq!(errand.state.world.snapshot().await, before);
    Command::Claim.run(store, &errand.state, RUNNER).await.expect("there is room again");
    errand.assert_done_once("a claim after there was no room for its statements").await;
}
