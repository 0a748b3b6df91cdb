//! A process that dies or freezes at any point of a command: what it had begun is undone, what it had committed stays.
//!
//! The process is a real one, and SIGKILL leaves it no time for anything.

use muster_tests::claim;
use muster_tests::course::Command;
use muster_tests::deadline::until;
use muster_tests::errand::Errand;
use muster_tests::probes::At;
use muster_tests::process::{Part, Playing};
use shared::transactions::claim::ClaimOutcome;

/// Longer than any test: no silent session is ended.
const NEVER_S: u32 = 600;

#[tokio::test]
#[ignore = "not a test: what the tests below run in a process of its own"]
async fn the_process_that_dies() {
    Part::play().await;
}

/// The test above, as its own binary calls it: without the crate in front.
fn child() -> String {
    let (_, module) = module_path!().split_once("::").expect("a module of a crate");
    format!("{module}::the_process_that_dies")
}

fn part(errand: &Errand, at: At, wait_timeout_s: u32) -> Part {
    let url = errand.state.world.url().to_owned();
    Part { url, command: errand.command, cast: errand.state.cast.clone(), at, wait_timeout_s }
}

/// Kills a process that stands there; the database is then as it was, or as a run without a fault makes it.
async fn dies(errand: &Errand, at: At) {
    let (world, command) = (&errand.state.world, errand.command);
    let here = format!("{command:?} killed at {at:?}");
    let before = errand.restore().await;
    let connections = world.connections().await;
    let mut child = Playing::start(&child(), &part(errand, at, NEVER_S)).await;
    child.stands().await;
    child.kill().await;
    world.until_only(&connections).await;
    if at == At::AfterCommit {
        errand.assert_done_once(&here).await;
    } else {
        assert_eq!(world.snapshot().await, before, "{here}: something is left of it");
        world.assert_invariants().await;
    }
    // Whoever gave the command heard nothing, and gives it again.
    errand.again().await;
    errand.assert_done_once(&format!("{here} and given again")).await;
}

async fn sweep(command: Command) {
    let errand = Errand::new(command).await;
    for n in 1..=errand.statements {
        dies(&errand, At::Statement(n)).await;
    }
    dies(&errand, At::BeforeCommit).await;
    dies(&errand, At::AfterCommit).await;
    println!("counted: killed: {command:?}: {} statements, {} deaths survived", errand.statements, errand.statements + 2);
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
    a_killed_admission_is_there_whole_or_not_at_all: Admit,
    a_killed_claim_is_there_whole_or_not_at_all: Claim,
    a_killed_render_is_there_whole_or_not_at_all: RecordRender,
    a_killed_merge_request_is_there_whole_or_not_at_all: RecordMergeRequest,
    a_killed_merge_is_there_whole_or_not_at_all: Succeed,
    a_killed_beginning_of_a_failure_is_there_whole_or_not_at_all: BeginFail,
    a_killed_failure_that_requeues_is_there_whole_or_not_at_all: FailRequeueing,
    a_killed_failure_that_rejects_is_there_whole_or_not_at_all: FailRejecting,
    a_killed_failure_that_halves_is_there_whole_or_not_at_all: FailHalving,
    a_killed_failure_by_order_is_there_whole_or_not_at_all: FailAsOrdered,
    a_killed_blocking_is_there_whole_or_not_at_all: Block,
    a_killed_unblocking_is_there_whole_or_not_at_all: Unblock,
    a_killed_withdrawal_of_a_member_is_there_whole_or_not_at_all: WithdrawMember,
    a_killed_withdrawal_is_there_whole_or_not_at_all: WithdrawWaiting,
    a_killed_late_merge_is_there_whole_or_not_at_all: LateMerge,
    a_killed_recovery_is_there_whole_or_not_at_all: Recover,
    a_killed_closing_is_there_whole_or_not_at_all: CloseFailed,
);

#[tokio::test]
async fn a_frozen_claim_is_freed_by_the_servers_limit_and_finds_out_when_it_thaws() {
    let errand = Errand::new(Command::Claim).await;
    errand.restore().await;
    let world = &errand.state.world;
    let mut child = Playing::start(&child(), &part(&errand, At::BeforeCommit, 1)).await;
    child.stands().await;
    child.signal("STOP").await;
    // The gate and the slot are the frozen one's, until the server ends its silent session.
    let batch = until("a claim by another", async || match world.run(&claim("another")).await {
        ClaimOutcome::Claimed { batch, .. } => Some(batch),
        ClaimOutcome::Contended => None,
        other => panic!("a claim beside a frozen one: {other:?}"),
    })
    .await;
    child.signal("CONT").await;
    child.go_on().await;
    // Its COMMIT met a closed connection; asked again, the slot is another's: an answer, not an error.
    assert_eq!(child.ends().await, "well");
    assert_eq!(world.count("merge_batch WHERE status IN (1, 4)").await, 1);
    assert_eq!(world.run(&claim("third")).await, ClaimOutcome::SlotOccupied { batch });
    world.assert_invariants().await;
}
