//! I6: whoever comes too late changes nothing, and is told what the state is.

use std::collections::BTreeMap;

use muster_tests::deadline::within;
use muster_tests::*;
use shared::ids::BatchId;
use shared::state::{BatchStatus, FailCause};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::note_progress::{NoteProgress, NoteProgressOutcome};
use shared::transactions::record_merge_request::RecordMergeRequestOutcome;
use shared::transactions::record_render::RecordRenderOutcome;
use shared::transactions::unblock::Unblock;

/// States of a batch that a late command may meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    Running,
    Failing,
    Blocked,
    BlockedFailing,
    Succeeded,
    Failed,
}

impl Met {
    fn status(self) -> BatchStatus {
        match self {
            Self::Running | Self::Failing => BatchStatus::Running,
            Self::Blocked | Self::BlockedFailing => BatchStatus::Blocked,
            Self::Succeeded => BatchStatus::Succeeded,
            Self::Failed => BatchStatus::Failed,
        }
    }

    async fn make(self) -> (World, BatchId) {
        let world = World::with_waiting(2).await;
        let batch = world.claimed("round-1").await;
        if matches!(self, Self::Blocked | Self::BlockedFailing) {
            assert_eq!(world.run(&block(batch)).await, SettleOutcome::Settled);
        }
        if matches!(self, Self::Failing | Self::BlockedFailing | Self::Failed) {
            assert_eq!(world.run(&begin_fail(batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
        }
        match self {
            Self::Succeeded => assert_eq!(world.run(&succeed(batch, "settler-0")).await, SettleOutcome::Settled),
            Self::Failed => assert_eq!(world.run(&fail(batch, "settler-0")).await, SettleOutcome::Settled),
            _ => {}
        }
        (world, batch)
    }
}

/// Every command that may change a batch, by its name.
const COMMANDS: [&str; 7] = ["succeed", "begin_fail", "fail", "block", "unblock", "record_render", "note_progress"];

/// Runs a command; the answer tells whether it was preempted, and by which state where the outcome names it.
async fn preempted(world: &World, command: &str, batch: BatchId) -> Option<Option<BatchStatus>> {
    let outcome = match command {
        "succeed" => world.run(&succeed(batch, "late")).await,
        "begin_fail" => world.run(&begin_fail(batch, FailCause::Rejected)).await,
        "fail" => world.run(&fail(batch, "late")).await,
        "block" => world.run(&block(batch)).await,
        "unblock" => world.run(&Unblock { batch }).await,
        "record_render" => {
            return match world.run(&record_render(batch)).await {
                RecordRenderOutcome::Preempted => Some(None),
                RecordRenderOutcome::Recorded { .. } => None,
                other => panic!("{other:?}"),
            };
        }
        "note_progress" => {
            return match world.run(&NoteProgress { batch, step: "pipeline_running" }).await {
                NoteProgressOutcome::Unchanged => Some(None),
                NoteProgressOutcome::Moved => None,
            };
        }
        other => panic!("no command {other}"),
    };
    match outcome {
        SettleOutcome::Settled => None,
        SettleOutcome::Preempted { status } => Some(Some(status)),
        SettleOutcome::UnknownBatch => panic!("the batch is known"),
    }
}

/// The edges of the batch's state machine: what may be done in each state.
fn allowed(met: Met) -> &'static [&'static str] {
    match met {
        Met::Running => &["succeed", "begin_fail", "block", "record_render", "note_progress"],
        Met::Failing | Met::BlockedFailing => &["succeed", "fail"],
        Met::Blocked => &["succeed", "begin_fail", "unblock"],
        Met::Succeeded | Met::Failed => &[],
    }
}

#[tokio::test]
async fn every_command_in_every_state_is_either_an_edge_of_the_machine_or_changes_nothing() {
    for met in [Met::Running, Met::Failing, Met::Blocked, Met::BlockedFailing, Met::Succeeded, Met::Failed] {
        let (world, batch) = met.make().await;
        let (saved, before) = (world.save().await, world.snapshot().await);
        for command in COMMANDS {
            world.restore(&saved).await;
            let lost = preempted(&world, command, batch).await;
            if allowed(met).contains(&command) {
                assert_eq!(lost, None, "{command} of a batch that is {met:?}");
                assert_ne!(world.snapshot().await, before, "{command} of a batch that is {met:?}");
            } else {
                let told = lost.unwrap_or_else(|| panic!("{command} of a batch that is {met:?} must be preempted"));
                assert!(told.is_none_or(|status| status == met.status()), "{command} of {met:?} answered {told:?}");
                assert_eq!(world.snapshot().await, before, "{command} of a batch that is {met:?}");
            }
            world.assert_invariants().await;
        }
    }
}

#[tokio::test]
async fn an_unknown_batch_changes_nothing() {
    let world = World::with_waiting(1).await;
    let before = world.snapshot().await;
    let nobody = BatchId(4_000_000_000);
    assert_eq!(world.run(&succeed(nobody, "late")).await, SettleOutcome::UnknownBatch);
    assert_eq!(world.run(&begin_fail(nobody, FailCause::Rejected)).await, SettleOutcome::UnknownBatch);
    assert_eq!(world.run(&fail(nobody, "late")).await, SettleOutcome::UnknownBatch);
    assert_eq!(world.run(&block(nobody)).await, SettleOutcome::UnknownBatch);
    assert_eq!(world.run(&Unblock { batch: nobody }).await, SettleOutcome::UnknownBatch);
    assert_eq!(world.run(&record_render(nobody)).await, RecordRenderOutcome::UnknownBatch);
    assert_eq!(world.run(&record_merge_request(nobody, 7)).await, RecordMergeRequestOutcome::UnknownBatch);
    assert_eq!(world.run(&NoteProgress { batch: nobody, step: "pipeline_running" }).await, NoteProgressOutcome::Unchanged);
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_32_settlements_at_once_one_settles_and_only_its_effects_are_wished_for() {
    let world = World::with_waiting(5).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    let store = world.store_patient(16);
    let running: Vec<_> = (0..32)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let by = format!("settler-{number}");
                if number % 2 == 0 { store.run(&succeed(batch, &by)).await } else { store.run(&fail(batch, &by)).await }
            })
        })
        .collect();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for one in running {
        let outcome = within("a settlement", one).await.expect("no panic").expect("an outcome, not an error");
        *counts.entry(outcome.name()).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([("settled", 1), ("preempted", 31)]));
    assert_eq!(world.count("outbox WHERE kind = 'delete_branch'").await, 1);
    assert_eq!(world.count("outbox WHERE dedup_key LIKE 'batch.succeeded:%' OR dedup_key LIKE 'batch.failed:%'").await, 1);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_settlement_that_is_ordered_twice_settles_once() {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    let before = world.snapshot().await;
    let again = world.run(&succeed(batch, "settler-1")).await;
    assert_eq!(again, SettleOutcome::Preempted { status: BatchStatus::Succeeded });
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn a_settlement_of_an_earlier_batch_does_not_touch_the_next_batch_of_the_same_requests() {
    let world = World::with_waiting(2).await;
    let first = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(first, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(first, "settler-1")).await, SettleOutcome::Settled);
    let second = world.claimed("round-2").await;
    let before = world.snapshot().await;
    for command in ["succeed", "fail", "begin_fail", "block"] {
        assert_eq!(preempted(&world, command, first).await, Some(Some(BatchStatus::Failed)), "{command}");
    }
    assert_eq!(world.snapshot().await, before);
    assert_eq!(world.run(&succeed(second, "settler-2")).await, SettleOutcome::Settled);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_relationship_that_was_changed_by_hand_is_not_overwritten_but_alarmed() {
    let by_hand = [
        "UPDATE binding SET status = 6 WHERE subject_id = 'subject-1'",
        "UPDATE binding SET operation_id = '01890000-0000-7000-8000-000000000001' WHERE subject_id = 'subject-1'",
    ];
    for sql in by_hand {
        let world = World::with_waiting(2).await;
        let batch = world.claimed("round-1").await;
        world.sql(sql, ()).await;
        let before = world.snapshot().await;
        let error = world.try_run(&succeed(batch, "settler-1")).await.expect_err("a relationship of somebody else");
        assert!(!error.is_fault() && error.to_string().contains("members.move_applied_bindings"), "{sql}: {error}");
        assert_eq!(world.snapshot().await, before, "{sql}");
    }
}
