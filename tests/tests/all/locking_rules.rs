//! The locking rules, each broken by hand and kept by our own units: what is broken deadlocks or blocks, what is kept
//! does not. Sessions are stopped where they meet, so nothing depends on luck.

mod by_hand;

use muster_tests::deadline::within;
use muster_tests::mutated::Mutated;
use muster_tests::probes::{At, Count, Pause};
use muster_tests::rows::insert;
use muster_tests::*;
use mysql_async::prelude::Queryable;
use shared::state::FailCause;
use shared::transactions::admit::AdmitOutcome;
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::ClaimOutcome;

use by_hand::{DEADLOCK, Hand, meet, waits_for, waits_for_rolled_back};

#[tokio::test]
async fn a_write_through_another_index_than_primary_deadlocks_and_one_through_primary_does_not() {
    for (index, is_broken) in [("idx_status_updated", true), ("PRIMARY", false)] {
        let world = World::with_waiting(2).await;
        let mut settling = Hand::open(&world).await;
        let one = world.waiting[0].as_str();
        settling.does(&format!("UPDATE operation SET message = 'seen' WHERE operation_id = '{one}'")).await.expect("the row is free");
        let moves = format!("UPDATE operation SET status = 6, settled_at = CURRENT_TIMESTAMP(6) WHERE operation_id = '{one}'");
        // Through the index it holds the entry, and waits for the row; the row's holder then wants the entry.
        let sweeps = format!("UPDATE operation FORCE INDEX ({index}) SET code = 'swept' WHERE status = 1 AND operation_id = '{one}'");
        let (went, came) = meet(&world, settling, &moves, &sweeps).await;
        let victims = [went, came].into_iter().filter(|one| *one == Err(DEADLOCK)).count();
        assert_eq!(victims, usize::from(is_broken), "through {index}: {went:?} {came:?}");
    }
}

#[tokio::test]
async fn targets_in_opposite_orders_deadlock_and_ascending_ones_do_not() {
    let free = |target: &str| format!("UPDATE target SET version = version + 1 WHERE target_key = '{target}'");
    for (second, is_broken) in [(["b", "a"], true), (["a", "b"], false)] {
        let world = World::new().await.with_target("a", "default", Some(5)).await.with_target("b", "default", Some(5)).await;
        let mut first = Hand::open(&world).await;
        first.does(&free("a")).await.expect("the row is free");
        let mut other = Hand::open(&world).await;
        if is_broken {
            other.does(&free(second[0])).await.expect("the row is free");
        }
        let next = free(if is_broken { second[1] } else { second[0] });
        let waiting = tokio::spawn(async move {
            let came = other.does(&next).await;
            other.commit().await;
            came
        });
        world.until_somebody_waits_for_a_lock().await;
        let went = first.does(&free("b")).await;
        first.commit().await;
        let came = within("the second", waiting).await.expect("no panic");
        let victims = [went, came].into_iter().filter(|one| *one == Err(DEADLOCK)).count();
        assert_eq!(victims, usize::from(is_broken), "{second:?}: {went:?} {came:?}");
    }
}

/// Two batches of two partitions give back seats of the same two targets, whose requests came in opposite orders.
#[tokio::test]
async fn two_failing_batches_with_the_same_targets_settle_without_a_deadlock() {
    let world = World::new().await.with_partition("east").await;
    let world = world.with_target("a", "default", Some(9)).await.with_target("b", "default", Some(9)).await;
    world.admitted(grant("alice", "a")).await;
    world.admitted(grant("alice", "b")).await;
    let west = world.claimed("west").await;
    // A target's partition changes only without relationships of it; here it is the requests that are moved.
    world.admitted(grant("bob", "b")).await;
    world.admitted(grant("bob", "a")).await;
    for table in ["operation", "merge_batch_request", "request_path"] {
        let waiting = "operation_id IN (SELECT operation_id FROM (SELECT operation_id FROM operation WHERE subject_id = 'bob') AS bobs)";
        world.sql(&format!("UPDATE {table} SET partition_key = 'east' WHERE {waiting}"), ()).await;
    }
    let ClaimOutcome::Claimed { batch: east, .. } = world.run(&claim_of("east", "east")).await else { panic!("not claimed") };
    for batch in [west, east] {
        assert_eq!(world.run(&begin_fail(batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    }
    // Holding the first target, before the second.
    let pause = Pause::new("fail", At::BeforeCommit);
    let first_store = world.store_probed(pause.clone());
    let first = tokio::spawn(async move { first_store.run(&fail(west, "settler-1")).await });
    pause.reached().await;
    let count = Count::new();
    let second_store = world.store_probed(count.clone());
    let second = tokio::spawn(async move { second_store.run(&fail(east, "settler-2")).await });
    world.until_somebody_waits_for_a_lock().await;
    pause.release();
    assert_eq!(first.await.expect("no panic").expect("an outcome"), SettleOutcome::Settled);
    assert_eq!(within("the second", second).await.expect("no panic").expect("an outcome"), SettleOutcome::Settled);
    assert_eq!((count.of("batch.lock_gate"), pause.met()), (1, 1), "neither was run again");
    assert_eq!(world.rows::<u64>("SELECT used FROM target", ()).await, [0, 0]);
    world.assert_invariants().await;
}

/// A shared lock on the gate, taken by the check of a foreign key, stands in the way of every claim; and waits for one.
#[tokio::test]
async fn a_foreign_key_to_the_gate_blocks_admission_during_a_claim_and_without_one_it_does_not_wait() {
    for is_broken in [true, false] {
        let world = World::spare("rules").await.with_partition("default").await;
        world.admitted(grant("alice", "db")).await;
        if is_broken {
            world
                .sql(
                    "ALTER TABLE operation ADD CONSTRAINT fk_gate FOREIGN KEY (partition_key) REFERENCES merge_partition (partition_key)",
                    (),
                )
                .await;
        }
        let pause = Pause::new("claim", At::BeforeCommit);
        let store = world.store_probed(pause.clone());
        let claiming = tokio::spawn(async move { store.run(&claim("round-1")).await });
        pause.reached().await;
        let patient = world.store_patient(1);
        let mut admitting = tokio::spawn(async move { patient.run(&admit(grant("bob", "db"))).await });
        let waited = tokio::select! {
            ended = &mut admitting => {
                assert!(matches!(ended.expect("no panic").expect("an outcome"), AdmitOutcome::Admitted(_)));
                false
            }
            () = world.until_somebody_waits_for_a_lock() => true,
        };
        assert_eq!(waited, is_broken);
        pause.release();
        let claimed = within("the claim", claiming).await.expect("no panic").expect("an outcome");
        assert!(matches!(claimed, ClaimOutcome::Claimed { .. }), "{claimed:?}");
        if waited {
            let admitted = within("the admission", admitting).await.expect("no panic").expect("an outcome");
            assert!(matches!(admitted, AdmitOutcome::Admitted(_)), "{admitted:?}");
        }
    }
}

#[tokio::test]
async fn an_answered_duplicate_of_a_secondary_key_blocks_its_neighbours_and_one_of_a_primary_key_does_not() {
    for (columns, is_broken) in
        [("id INT AUTO_INCREMENT PRIMARY KEY, k VARCHAR(8) NOT NULL UNIQUE", true), ("k VARCHAR(8) PRIMARY KEY", false)]
    {
        let world = World::spare("rules").await;
        world.sql(&format!("CREATE TABLE answered ({columns}) ENGINE = InnoDB"), ()).await;
        world.sql("INSERT INTO answered (k) VALUES ('b'), ('d')", ()).await;
        let mut loser = Hand::open(&world).await;
        assert_eq!(loser.does("INSERT INTO answered (k) VALUES ('d')").await, Err(1062));
        // Still open, as a unit is that goes on after the answer.
        assert_eq!(waits_for(&world, loser, "INSERT INTO answered (k) VALUES ('c')").await, is_broken, "{columns}");
    }
}

#[tokio::test]
async fn a_requeue_by_deleting_and_inserting_blocks_admission_and_one_in_place_does_not() {
    let world = World::with_waiting(3).await;
    let batch = world.claimed("round-1").await;
    // By hand, as the document's reader might.
    let mut broken = Hand::open(&world).await;
    let kept = "CREATE TEMPORARY TABLE kept SELECT operation_id, partition_key, created_at, rank_at, bytes FROM merge_batch_request";
    broken.does(kept).await.expect("the rows can be kept");
    broken.does("DELETE FROM merge_batch_request").await.expect("the rows are free");
    let anew = "INSERT INTO merge_batch_request (operation_id, partition_key, created_at, rank_at, bytes) SELECT * FROM kept ORDER BY 1";
    broken.does(anew).await.expect("the keys are free again");
    let newcomer =
        insert("merge_batch_request", &[("operation_id", "'ffffffff-0000-7000-8000-000000000001'"), ("partition_key", "'default'")]);
    broken.0.query_drop("SAVEPOINT here").await.expect("a savepoint");
    let blocks = waits_for_rolled_back(&world, broken, &newcomer).await;
    assert!(blocks, "gaps of the unique key are locked");
    // Our own, stopped where it holds all that it will.
    assert_eq!(world.run(&begin_fail(batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    let pause = Pause::new("fail", At::BeforeCommit);
    let store = world.store_probed(pause.clone());
    let failing = tokio::spawn(async move { store.run(&fail(batch, "settler")).await });
    pause.reached().await;
    world.admitted(grant("newcomer", "db")).await;
    pause.release();
    assert_eq!(failing.await.expect("no panic").expect("an outcome"), SettleOutcome::Settled);
    world.assert_invariants().await;
}

/// Without the gate a claim meets another at the slot's unique key, holding it until it commits: the other waits.
#[tokio::test]
async fn without_the_gate_a_claim_waits_at_the_slot_and_with_it_is_answered_at_once() {
    for is_broken in [true, false] {
        let world = World::with_waiting(2).await;
        let pause = Pause::new("claim", At::BeforeCommit);
        let store = world.store_probed(pause.clone());
        let first = tokio::spawn(async move { store.run(&claim("first")).await });
        pause.reached().await;
        let second_store = match is_broken {
            true => world.store_probed(Mutated::statement("claim.lock_free_gate", " FOR UPDATE SKIP LOCKED", "")),
            false => world.store(),
        };
        let mut second = tokio::spawn(async move { second_store.run(&claim("second")).await });
        let waited = tokio::select! {
            ended = &mut second => {
                assert_eq!(ended.expect("no panic").expect("an outcome"), ClaimOutcome::Contended);
                false
            }
            () = world.until_somebody_waits_for_a_lock() => true,
        };
        assert_eq!(waited, is_broken);
        pause.release();
        let first = within("the first claim", first).await.expect("no panic").expect("an outcome");
        assert!(matches!(first, ClaimOutcome::Claimed { .. }), "{first:?}");
        if waited {
            let second = within("the second claim", second).await.expect("no panic").expect("an outcome");
            assert!(matches!(second, ClaimOutcome::SlotOccupied { .. }), "{second:?}");
        }
    }
}

/// The order of the unique key's columns: with the partition in the value alone, the entry that a settled batch has left
/// makes a claim lock the gap before it, where the neighbour's entry belongs.
#[tokio::test]
async fn a_slot_keyed_by_its_value_alone_blocks_the_neighbour_and_one_keyed_by_partition_first_does_not() {
    let world = World::spare("rules").await;
    world.sql("CREATE TABLE by_value (id INT AUTO_INCREMENT PRIMARY KEY, slot VARCHAR(8) NULL UNIQUE) ENGINE = InnoDB", ()).await;
    world
        .sql("CREATE TABLE by_partition (id INT AUTO_INCREMENT PRIMARY KEY, p VARCHAR(8), slot TINYINT NULL, UNIQUE (p, slot)) ENGINE = InnoDB", ())
        .await;
    world.sql("INSERT INTO by_value (slot) VALUES ('d')", ()).await;
    world.sql("INSERT INTO by_partition (p, slot) VALUES ('d', 1)", ()).await;
    // Somebody who looks keeps the server from forgetting the entries that are left below.
    let mut looker = world.session().await;
    looker.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.expect("a session can be set up");
    looker.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.expect("a snapshot can be begun");
    let _: Vec<i64> = looker.query("SELECT id FROM by_value").await.expect("it can look");
    world.sql("UPDATE by_value SET slot = NULL", ()).await;
    world.sql("UPDATE by_partition SET slot = NULL", ()).await;
    let neighbours = [
        ("INSERT INTO by_value (slot) VALUES ('d')", "INSERT INTO by_value (slot) VALUES ('cc')", true),
        ("INSERT INTO by_partition (p, slot) VALUES ('d', 1)", "INSERT INTO by_partition (p, slot) VALUES ('cc', 1)", false),
    ];
    for (claims, neighbour_claims, is_broken) in neighbours {
        let mut claimer = Hand::open(&world).await;
        claimer.does(claims).await.expect("the slot is free");
        assert_eq!(waits_for(&world, claimer, neighbour_claims).await, is_broken, "{claims}");
    }
}

/// All stand before their COMMIT at once, each with its slot and its members: none waits for another.
#[tokio::test]
async fn eight_partitions_claim_side_by_side() {
    let mut world = World::empty().await;
    let keys: Vec<String> = (b'a'..=b'h').map(|letter| char::from(letter).to_string()).collect();
    for key in &keys {
        world = world.with_partition(key).await.with_target(&format!("db-{key}"), key, None).await;
        world.admitted(grant("alice", &format!("db-{key}"))).await;
        world.admitted(grant("bob", &format!("db-{key}"))).await;
    }
    // Twice: the second time each slot has been held before.
    for round in 0..2 {
        let mut claiming = Vec::new();
        for key in &keys {
            let pause = Pause::new("claim", At::BeforeCommit);
            let store = world.store_probed(pause.clone());
            let unit = claim_of(key, &format!("{key}-{round}"));
            claiming.push((pause.clone(), tokio::spawn(async move { store.run(&unit).await })));
            pause.reached().await;
        }
        for (pause, running) in claiming {
            pause.release();
            let ClaimOutcome::Claimed { batch, members } = running.await.expect("no panic").expect("an outcome") else {
                panic!("not claimed")
            };
            assert_eq!((members.len(), pause.met()), (2, 1));
            assert_eq!(world.run(&begin_fail(batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
            assert_eq!(world.run(&fail(batch, "settler")).await, SettleOutcome::Settled);
        }
    }
    world.assert_invariants().await;
}
