//! I1 and I2 under concurrency: one active batch per partition, no request in two, and no raw error for anybody.

use std::collections::{BTreeMap, BTreeSet};

use muster_tests::deadline::within;
use muster_tests::probes::{At, Pause};
use muster_tests::*;
use shared::ids::{BatchId, ClaimToken};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::{Claim, ClaimOutcome};
use shared::transactions::withdraw::WithdrawOutcome;
use shared::tx::Inserted;
use shared::{Decision, Guarded, Store, StoreError, Tx, commit, refuse};

async fn all_at_once<G: Guarded + Send + 'static>(store: &Store, units: Vec<G>) -> Vec<G::Outcome>
where
    G::Outcome: 'static,
{
    let running: Vec<_> = units
        .into_iter()
        .map(|unit| {
            let store = store.clone();
            tokio::spawn(async move { store.run(&unit).await })
        })
        .collect();
    let mut outcomes = Vec::new();
    for one in running {
        outcomes.push(within("a unit", one).await.expect("no panic").expect("an outcome, not an error"));
    }
    outcomes
}

#[tokio::test]
async fn a_claim_that_meets_another_in_its_course_is_contended_and_after_it_occupied() {
    let world = World::with_waiting(3).await;
    let pause = Pause::new("claim", At::BeforeCommit);
    let store = world.store_probed(pause.clone());
    let first = tokio::spawn(async move { store.run(&claim("round-1")).await });
    pause.reached().await;
    assert_eq!(world.run(&claim("round-2")).await, ClaimOutcome::Contended);
    pause.release();
    let outcome = first.await.expect("no panic").expect("an outcome");
    let ClaimOutcome::Claimed { batch, members } = outcome else { panic!("not claimed: {outcome:?}") };
    assert_eq!(members, world.waiting);
    assert_eq!(world.run(&claim("round-2")).await, ClaimOutcome::SlotOccupied { batch });
    world.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_triggers_in_each_of_five_rounds_one_claims() {
    let world = World::with_waiting(15).await;
    world.sql("UPDATE merge_partition SET max_requests = 3", ()).await;
    let store = world.store_patient(32);
    let mut taken = BTreeSet::new();
    for round in 0..5 {
        let triggers = (0..64).map(|_| Claim { token: ClaimToken::random(), ..claim("") }).collect();
        let outcomes = all_at_once(&store, triggers).await;
        let mut claimed = Vec::new();
        for outcome in outcomes {
            match outcome {
                ClaimOutcome::Claimed { batch, members } => claimed.push((batch, members)),
                ClaimOutcome::SlotOccupied { .. } | ClaimOutcome::Contended => {}
                other => panic!("round {round}: {other:?}"),
            }
        }
        assert_eq!(claimed.len(), 1, "round {round}");
        for (batch, members) in claimed {
            assert_eq!(members.len(), 3);
            taken.extend(members);
            world.assert_invariants().await;
            assert_eq!(world.run(&succeed(batch, "settler")).await, SettleOutcome::Settled);
        }
    }
    assert_eq!(taken, world.waiting.iter().cloned().collect());
    world.assert_invariants().await;
}

/// Claims and settles its partition again and again; counts what it met.
async fn runner(store: Store, partition: &'static str, rounds: u32) -> BTreeMap<&'static str, u32> {
    let mut met = BTreeMap::new();
    for _ in 0..rounds {
        let unit = Claim { token: ClaimToken::random(), max_requests: Some(2), ..claim_of(partition, "") };
        let outcome = store.run(&unit).await.expect("an outcome, not an error");
        *met.entry(outcome.name()).or_default() += 1;
        // Whoever sees a batch tries to settle it, so claims and settlements overlap in every order.
        if let ClaimOutcome::Claimed { batch, .. } | ClaimOutcome::SlotOccupied { batch } = outcome {
            let by = unit.token.hex();
            match store.run(&succeed(batch, &by)).await.expect("an outcome, not an error") {
                SettleOutcome::Settled => *met.entry("settled").or_default() += 1,
                SettleOutcome::Preempted { .. } => {}
                SettleOutcome::UnknownBatch => panic!("batch {batch} was seen a moment ago"),
            }
        }
    }
    met
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_settlements_of_four_partitions_overlap_without_an_error() {
    const PARTITIONS: [&str; 4] = ["a", "b", "c", "d"];
    let mut world = World::empty().await;
    for partition in PARTITIONS {
        world = world.with_partition(partition).await.with_target(partition, partition, Some(100)).await;
        for number in 0..12 {
            world.admitted(grant(&format!("subject-{number}"), partition)).await;
        }
    }
    let store = world.store_patient(32);
    let runners: Vec<_> = (0..32).map(|number| tokio::spawn(runner(store.clone(), PARTITIONS[number % PARTITIONS.len()], 20))).collect();
    let mut met: BTreeMap<&str, u32> = BTreeMap::new();
    for one in runners {
        for (name, count) in within("a runner", one).await.expect("no error") {
            *met.entry(name).or_default() += count;
        }
    }
    // The rest, if the runners stumbled over one another too often.
    for partition in PARTITIONS {
        within("the rest", async {
            loop {
                let batch = match world.run(&Claim { token: ClaimToken::random(), ..claim_of(partition, "") }).await {
                    ClaimOutcome::Claimed { batch, .. } | ClaimOutcome::SlotOccupied { batch } => batch,
                    ClaimOutcome::NothingToClaim => break,
                    other => panic!("{other:?}"),
                };
                let _ = world.run(&succeed(batch, "the rest")).await;
            }
        })
        .await;
    }
    assert_eq!(world.count("operation WHERE status = 3").await, 48, "{met:?}");
    assert_eq!(world.count("merge_batch WHERE status <> 2").await, 0);
    world.assert_invariants().await;
}

/// A claim as the document has it, without Muster's gate: only the unique key stands between two of them.
struct ClaimWithoutGate {
    token: ClaimToken,
}

impl Guarded for ClaimWithoutGate {
    const NAME: &'static str = "claim_without_gate";
    type Outcome = Option<BatchId>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Decision<Option<BatchId>>, StoreError> {
        let slot = "/* test.take_free_slot */ INSERT INTO merge_batch (partition_key, claim_token, trigger_kind, requested_by) VALUES ('default', ?, 2, 'nobody')";
        let Inserted::New(batch) = tx.insert_new(slot, (self.token,)).await? else { return refuse(None) };
        let rows =
            tx.rows::<(u64, String)>("SELECT id, operation_id FROM merge_batch_request WHERE batch_id IS NULL ORDER BY id", ()).await?;
        for (position, (id, operation)) in rows.iter().enumerate() {
            tx.write_exactly(1, "UPDATE merge_batch_request SET batch_id = ? WHERE id = ? AND batch_id IS NULL", (batch, id)).await?;
            let member = "INSERT INTO merge_batch_member (batch_id, operation_id, position) VALUES (?, ?, ?)";
            tx.write_exactly(1, member, (batch, operation, position)).await?;
            tx.write_exactly(1, "UPDATE operation SET status = 2, batch_id = ? WHERE operation_id = ? AND status = 1", (batch, operation))
                .await?;
        }
        commit(Some(BatchId(batch)))
    }

    fn outcome_name(_: &Option<BatchId>) -> &'static str {
        "any"
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_gate_the_unique_key_alone_keeps_the_slot_single() {
    let world = World::with_waiting(3).await;
    let store = world.store_patient(16);
    let running: Vec<_> = (0..32)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.run(&ClaimWithoutGate { token: ClaimToken::random() }).await })
        })
        .collect();
    let mut claimed = Vec::new();
    for one in running {
        match within("a claim", one).await.expect("no panic") {
            Ok(batch) => claimed.extend(batch),
            // What the gate is there for; never a second batch.
            Err(StoreError::Undone { .. } | StoreError::LockWait) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    assert_eq!(world.count("merge_batch").await, 1);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_row_that_another_took_since_it_was_read_ends_in_one_batch_only() {
    let world = World::with_waiting(3).await;
    // A claimer outside of every rule, with a batch that has ended.
    world
        .sql(
            "INSERT INTO merge_batch (id, partition_key, claim_token, status, trigger_kind, requested_by, settled_at, settled_by) \
             VALUES (4000000000, 'default', 'another claimer!', 3, 2, 'nobody', CURRENT_TIMESTAMP(6), 'nobody')",
            (),
        )
        .await;
    let pause = Pause::new("claim", At::Named("claim.claim_waiting_rows"));
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&claim("round-1")).await });
    pause.reached().await;
    world.sql("UPDATE merge_batch_request SET batch_id = 4000000000 WHERE operation_id = ?", (&world.waiting[1],)).await;
    pause.release();
    let outcome = running.await.expect("no panic").expect("an outcome");
    let ClaimOutcome::Claimed { batch, members } = outcome else { panic!("not claimed: {outcome:?}") };
    assert_eq!(members, [world.waiting[0].clone(), world.waiting[2].clone()]);
    let rows = "SELECT CONCAT_WS(' ', operation_id, batch_id) FROM merge_batch_request ORDER BY id";
    let expected = [(0, batch.0), (1, 4_000_000_000), (2, batch.0)].map(|(at, batch)| format!("{} {batch}", world.waiting[at]));
    assert_eq!(world.rows::<String>(rows, ()).await, expected);
}

#[tokio::test]
async fn a_request_that_was_withdrawn_since_it_was_read_is_not_claimed() {
    let world = World::with_waiting(3).await;
    let pause = Pause::new("claim", At::Named("claim.claim_waiting_rows"));
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&claim("round-1")).await });
    pause.reached().await;
    assert_eq!(world.run(&withdraw(&world.waiting[0])).await, WithdrawOutcome::Withdrawn);
    pause.release();
    let outcome = running.await.expect("no panic").expect("an outcome");
    let ClaimOutcome::Claimed { members, .. } = outcome else { panic!("not claimed: {outcome:?}") };
    assert_eq!(members, world.waiting[1..]);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_claim_does_not_wait_for_an_admission_in_its_course() {
    let world = World::with_waiting(1).await;
    let pause = Pause::new("admit", At::BeforeCommit);
    let store = world.store_probed(pause.clone());
    let running = tokio::spawn(async move { store.run(&admit(grant("late", "db"))).await });
    pause.reached().await;
    let ClaimOutcome::Claimed { batch, members } = world.run(&claim("round-1")).await else { panic!("not claimed") };
    assert_eq!(members, world.waiting);
    pause.release();
    running.await.expect("no panic").map(drop).expect("an outcome");
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    let ClaimOutcome::Claimed { members, .. } = world.run(&claim("round-2")).await else { panic!("not claimed") };
    assert_eq!(members.len(), 1);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_row_whose_request_has_ended_by_hand_is_not_claimed() {
    let world = World::with_waiting(2).await;
    world.sql("UPDATE operation SET status = 4, settled_at = CURRENT_TIMESTAMP(6) WHERE operation_id = ?", (&world.waiting[1],)).await;
    let before = world.snapshot().await;
    assert_eq!(world.run(&claim("round-1")).await, ClaimOutcome::Preempted);
    assert_eq!(world.snapshot().await, before);
}
