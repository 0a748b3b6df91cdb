//! set_target, list_targets.

use muster_tests::journey::Journey;
use muster_tests::probes::{At, Pause};
use muster_tests::{World, admit, grant, principal, revoke, succeed, target, withdraw};
use serde_json::{Value, json};
use shared::transactions::admit::AdmitOutcome;
use shared::transactions::command::{Command, CommandOutcome};
use shared::transactions::set_target::SetTarget;

use super::{already, ask, order, refused, rehearsed_then_done};

fn capacity(seats: Option<u64>) -> SetTarget {
    SetTarget {
        target: target("db"),
        partition: None,
        capacity: Some(seats),
        closed: None,
        command: Command::new("set_target", principal("ann"), "why", false),
    }
}

#[tokio::test]
async fn a_target_comes_to_be_and_changes_as_ordered() {
    let journey = Journey::with_world(World::new().await.with_partition("second").await).await;
    let done = rehearsed_then_done(&journey, "set_target", json!({ "target_key": "db" })).await;
    assert_eq!((&done["before"], &done["after"]["partition"], &done["after"]["capacity"]), (&Value::Null, &json!("default"), &Value::Null));
    already(&journey, "set_target", json!({ "target_key": "db" })).await;
    already(&journey, "set_target", json!({ "target_key": "db", "partition": "default", "capacity": null, "closed": false })).await;
    let done = rehearsed_then_done(&journey, "set_target", json!({ "target_key": "db", "capacity": 3, "closed": true })).await;
    assert_eq!((&done["after"]["capacity"], &done["after"]["used"]), (&json!(3), &json!(0)), "{done}");
    assert!(done["after"]["closed_at"].is_string());
    let answer = journey.world.run(&admit(grant("alice", "db"))).await;
    assert_eq!(answer, AdmitOutcome::TargetClosed);
    let done = order(&journey, "set_target", json!({ "target_key": "db", "partition": "second", "closed": false })).await;
    assert_eq!((&done["after"]["partition"], &done["after"]["closed_at"]), (&json!("second"), &Value::Null), "{done}");
    refused(&journey, "set_target", json!({ "target_key": "db", "partition": "third" }), "no partition third").await;
    refused(&journey, "set_target", json!({ "target_key": "new", "partition": "third" }), "no partition third").await;
    order(&journey, "set_partition", json!({ "partition": "default", "closed": true })).await;
    refused(&journey, "set_target", json!({ "target_key": "db", "partition": "default" }), "is closed").await;
    refused(&journey, "set_target", json!({ "target_key": "new" }), "is closed").await;
    refused(&journey, "set_target", json!({ "target_key": "db", "capacity": 1_000_000_001 }), "capacity is more than").await;
}

#[tokio::test]
async fn without_the_default_partition_a_target_must_name_one() {
    let journey = Journey::with_world(World::empty().await).await;
    refused(&journey, "set_target", json!({ "target_key": "db" }), "make it with set_partition").await;
}

#[tokio::test]
async fn setting_a_capacity_counts_the_seats_that_are_held() {
    let journey = Journey::new().await;
    for subject in ["alice", "bob", "carol"] {
        journey.world.admitted(grant(subject, "db")).await;
    }
    let gone = journey.world.admitted(grant("dave", "db")).await;
    let _ = journey.world.run(&withdraw(&gone)).await;
    let done = rehearsed_then_done(&journey, "set_target", json!({ "target_key": "db", "capacity": 3 })).await;
    assert_eq!(done["after"]["used"], 3, "{done}");
    assert_eq!(journey.world.run(&admit(grant("erin", "db"))).await, AdmitOutcome::SeatsExhausted { capacity: 3, used: 3 });
    // A count that has drifted is put right by the same order.
    journey.world.sql("UPDATE target SET used = 1", ()).await;
    let done = order(&journey, "set_target", json!({ "target_key": "db", "capacity": 3 })).await;
    assert_eq!((&done["outcome"], &done["after"]["used"]), (&json!("done"), &json!(3)), "{done}");
    already(&journey, "set_target", json!({ "target_key": "db", "capacity": 3 })).await;
    let done = order(&journey, "set_target", json!({ "target_key": "db", "capacity": null })).await;
    assert_eq!((&done["after"]["capacity"], &done["after"]["used"]), (&Value::Null, &Value::Null), "{done}");
    journey.world.admitted(grant("erin", "db")).await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_target_moves_only_when_none_of_its_relationships_lives() {
    let journey = Journey::with_world(World::new().await.with_partition("second").await).await;
    let moved = json!({ "target_key": "db", "partition": "second" });
    journey.world.admitted(grant("alice", "db")).await;
    refused(&journey, "set_target", moved.clone(), "1 relationships").await;
    let batch = journey.world.claimed("token-1").await;
    let _ = journey.world.run(&succeed(batch, "settler")).await;
    refused(&journey, "set_target", moved.clone(), "1 relationships").await;
    journey.world.admitted(revoke("alice", "db")).await;
    let batch = journey.world.claimed("token-2").await;
    refused(&journey, "set_target", moved.clone(), "1 relationships").await;
    let _ = journey.world.run(&succeed(batch, "settler")).await;
    let done = order(&journey, "set_target", moved).await;
    assert_eq!((&done["outcome"], &done["after"]["partition"]), (&json!("done"), &json!("second")), "{done}");
}

#[tokio::test]
async fn a_capacity_that_is_set_beside_an_admission_or_a_withdrawal_counts_right() {
    // Whichever unit stands before its COMMIT, the capacity waits for it or it waits for the capacity.
    for held in ["admit", "withdraw", "set_target"] {
        let world = World::new().await;
        let alice = world.admitted(grant("alice", "db")).await;
        world.admitted(grant("bob", "db")).await;
        let pause = Pause::new(held, At::BeforeCommit);
        let (first, second) = (world.store_probed(pause.clone()), world.store());
        let unit = withdraw(&alice);
        let (a, b) = match held {
            "admit" => (tokio::spawn(async move { drop(first.run(&admit(grant("carol", "db"))).await.expect("an outcome")) }), None),
            "withdraw" => {
                (tokio::spawn(async move { assert_eq!(format!("{:?}", first.run(&unit).await.expect("an outcome")), "Withdrawn") }), None)
            }
            _ => (tokio::spawn(async move { drop(first.run(&capacity(Some(9))).await.expect("an outcome")) }), Some(unit)),
        };
        pause.reached().await;
        let other = match b {
            None => tokio::spawn(async move { drop(second.run(&capacity(Some(9))).await.expect("an outcome")) }),
            Some(unit) => {
                tokio::spawn(async move { assert_eq!(format!("{:?}", second.run(&unit).await.expect("an outcome")), "Withdrawn") })
            }
        };
        world.until_somebody_waits_at("target").await;
        pause.release();
        a.await.expect("no panic");
        other.await.expect("no panic");
        let (capacity, used): (u64, u64) = world.rows("SELECT capacity, used FROM target", ()).await[0];
        let seats = world.count("binding WHERE status IN (1, 2, 3, 5)").await;
        assert_eq!((capacity, used), (9, seats), "held: {held}");
        world.assert_invariants().await;
    }
}

#[tokio::test]
async fn of_many_who_make_the_same_target_one_has_made_it() {
    let world = World::new().await;
    let store = world.store_with(|options| options.connections = 8);
    let mut making = Vec::new();
    for _ in 0..16 {
        let store = store.clone();
        making.push(tokio::spawn(async move { store.run(&capacity(Some(3))).await.expect("an outcome") }));
    }
    let mut done = 0;
    for one in making {
        match one.await.expect("no panic") {
            CommandOutcome::Done { .. } => done += 1,
            CommandOutcome::Already { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((done, world.count("target").await, world.count("audit_record").await), (1, 1, 1));
}

#[tokio::test]
async fn targets_are_listed_page_by_page() {
    let mut world = World::new().await.with_partition("second").await;
    for (key, partition) in [("a", "default"), ("b", "second"), ("c", "default"), ("d", "default")] {
        world = world.with_target(key, partition, None).await;
    }
    let journey = Journey::with_world(world).await;
    let keys = |answer: &Value| -> Vec<String> {
        let listed = answer["targets"].as_array().expect("targets");
        listed.iter().map(|one| one["target_key"].as_str().expect("a key").to_owned()).collect()
    };
    let page = ask(&journey, json!({ "action": "list_targets", "limit": 3 })).await;
    assert_eq!((keys(&page), &page["next_after"]), (vec!["a".into(), "b".into(), "c".into()], &json!("c")));
    let page = ask(&journey, json!({ "action": "list_targets", "limit": 3, "after": "c" })).await;
    assert_eq!((keys(&page), &page["next_after"]), (vec!["d".into()], &Value::Null));
    let page = ask(&journey, json!({ "action": "list_targets", "partition": "default" })).await;
    assert_eq!(keys(&page), ["a", "c", "d"]);
    let wrong = ask(&journey, json!({ "action": "list_targets", "limit": 0, "page": 2 })).await;
    assert_eq!(wrong["problems"].as_array().map(Vec::len), Some(2), "{wrong}");
}
