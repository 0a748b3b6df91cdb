//! Storms: everything at once, again and again. I1, I2, I4 and I6 hold, and no database error reaches a caller.
//!
//! `make storm` runs the full size, and `make test` a small one. Who wins a race is chance; how many win is not.

mod admissions;
mod settlements;
mod tally;
mod triggers;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_tests::deadline::within;
use muster_tests::{World, claim_of, grant, succeed};
use shared::ids::ClaimToken;
use shared::transactions::claim::{Claim, ClaimOutcome};
use shared::{Guarded, Store};
use tally::Tally;
use tokio::sync::Barrier;

const PARTITIONS: [&str; 3] = ["north", "south", "west"];
/// Where `make storm` finds the last line.
const VERDICT: &str = "storm.txt";

#[derive(Debug, Clone, Copy)]
struct Size {
    triggers: usize,
    rounds: usize,
    /// Keys that are admitted at once in each tenth round, each by four callers.
    keys: usize,
    connections: usize,
}

const SMALL: Size = Size { triggers: 18, rounds: 9, keys: 4, connections: 18 };
const FULL: Size = Size { triggers: 64, rounds: 500, keys: 16, connections: 64 };

/// What waits in a partition when the triggers start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nothing,
    /// Several requests of one and the same microsecond: only their numbers tell them apart.
    OfOneInstant,
    /// More than a round takes.
    MoreThanARound,
}

impl Waiting {
    /// Each partition meets each kind in turn, and the partitions differ.
    fn of(round: usize, partition: usize) -> Self {
        [Self::Nothing, Self::OfOneInstant, Self::MoreThanARound][(round + partition) % 3]
    }

    fn count(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::OfOneInstant => 3,
            Self::MoreThanARound => 6,
        }
    }
}

/// Requests that one round takes at most.
const ROUND_MAX: u32 = 4;

/// Runs all of these units at the same moment, and answers what came of them. An error is counted, not returned.
async fn all_at_once<G>(store: &Store, units: Vec<G>, tally: &mut Tally) -> Vec<(G, G::Outcome)>
where
    G: Guarded + Send + 'static,
    G::Outcome: 'static,
{
    let start = Arc::new(Barrier::new(units.len()));
    let running: Vec<_> = units
        .into_iter()
        .map(|unit| {
            let (store, start) = (store.clone(), start.clone());
            tokio::spawn(async move {
                start.wait().await;
                let outcome = store.run(&unit).await;
                (unit, outcome)
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for one in running {
        let (unit, outcome) = within("a unit of a storm", one).await.expect("no panic");
        outcomes.extend(tally.judged(unit, outcome));
    }
    outcomes
}

async fn world() -> World {
    let mut world = World::empty().await;
    for partition in PARTITIONS {
        world = world.with_partition(partition).await.with_target(partition, partition, Some(1_000_000)).await;
    }
    world.sql("UPDATE merge_partition SET max_requests = ?", (ROUND_MAX,)).await;
    world
}

/// Lets requests wait, all of them admitted at one instant of the past.
async fn let_wait(world: &World, round: usize, partition: usize) {
    let waiting = Waiting::of(round, partition);
    if waiting == Waiting::Nothing {
        return drain(world, PARTITIONS[partition]).await;
    }
    let left: u64 = world
        .scalar("SELECT COUNT(*) FROM merge_batch_request WHERE partition_key = ? AND batch_id IS NULL", (PARTITIONS[partition],))
        .await;
    let past = world.store_in(-5).await;
    for number in left as usize..waiting.count() {
        let unit = muster_tests::admit(grant(&format!("subject-{round}-{number}"), PARTITIONS[partition]));
        let outcome = past.run(&unit).await.expect("an admission without a rival");
        assert_eq!(outcome.name(), "admitted", "{outcome:?}");
    }
}

/// Merges whatever an earlier round left.
async fn drain(world: &World, partition: &'static str) {
    loop {
        let unit = Claim { token: ClaimToken::random(), ..claim_of(partition, "") };
        let batch = match world.run(&unit).await {
            ClaimOutcome::Claimed { batch, .. } => batch,
            ClaimOutcome::NothingToClaim => return,
            other => panic!("a claim without a rival: {other:?}"),
        };
        assert_eq!(world.run(&succeed(batch, "drain")).await.name(), "settled");
    }
}

async fn storm(size: Size) -> Tally {
    let world = world().await;
    let store = world.store_patient(size.connections);
    let (watching, calm) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let watch = tokio::spawn(triggers::most_active(world.session().await, watching.clone(), calm.clone()));
    let mut tally = Tally::default();
    for round in 0..size.rounds {
        for partition in 0..PARTITIONS.len() {
            let_wait(&world, round, partition).await;
        }
        let claimed = triggers::start_together(&store, size.triggers, round, &mut tally).await;
        if round % 10 == 0 {
            admissions::of_the_same_keys(&store, size.keys, round, &mut tally).await;
        }
        for batch in claimed {
            settlements::of_one_batch(&world, &store, batch, round, &mut tally).await;
        }
        if round % 50 == 0 {
            world.assert_invariants().await;
        }
    }
    watching.store(false, Ordering::SeqCst);
    tally.max_active = watch.await.expect("no panic");
    assert!(calm.load(Ordering::SeqCst), "nobody looked");
    world.assert_invariants().await;
    tally
}

/// # Panics
/// Unless the storm came out as it must.
fn judge(size: Size, tally: &Tally) {
    println!("{tally}");
    println!("counted: {}", tally.verdict(size));
    assert_eq!(tally.raw_errors, 0, "{:#?}", tally.errors);
    assert_eq!(tally.max_active, 1, "more than one active batch, or never one");
    for name in ["claimed", "slot_occupied", "nothing_to_claim", "admitted", "replayed", "key_reused", "settled"] {
        assert!(tally.of(name) > 0, "nobody met {name}: {tally}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_storm_leaves_one_active_batch_per_partition_and_no_error_for_anybody() {
    judge(SMALL, &storm(SMALL).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "some minutes: `make storm`"]
async fn at_full_size() {
    let tally = storm(FULL).await;
    judge(FULL, &tally);
    let path = local::places::muster().expect("a folder of our own").join(VERDICT);
    fs::write(&path, format!("{}\n", tally.verdict(FULL))).expect("a line can be written");
}
