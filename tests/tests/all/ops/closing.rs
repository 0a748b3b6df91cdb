//! Closing a partition: never under something that waits, runs or lives.

use muster_tests::journey::Journey;
use muster_tests::probes::{At, Pause};
use muster_tests::{World, admit, grant, principal, revoke, succeed};
use serde_json::json;
use shared::transactions::admit::AdmitOutcome;
use shared::transactions::command::{Command, CommandOutcome};
use shared::transactions::set_partition::settings::PartitionWish;
use shared::transactions::set_partition::{PartitionRefusal, SetPartition};

use super::{already, order, refused, rehearsed_then_done};

fn closing() -> SetPartition {
    SetPartition {
        partition: muster_tests::partition_key("default"),
        wish: PartitionWish { closed: Some(true), ..PartitionWish::default() },
        command: Command::new("set_partition", principal("ann"), "why", false),
    }
}

#[tokio::test]
async fn a_partition_closes_only_when_nothing_in_it_is_left() {
    let journey = Journey::new().await;
    let close = json!({ "partition": "default", "closed": true });
    journey.world.admitted(grant("alice", "db")).await;
    refused(&journey, "set_partition", close.clone(), "1 requests wait").await;
    let batch = journey.world.claimed("token-1").await;
    refused(&journey, "set_partition", close.clone(), &format!("batch {batch} runs")).await;
    let _ = journey.world.run(&succeed(batch, "settler")).await;
    refused(&journey, "set_partition", close.clone(), "1 relationships").await;
    journey.world.admitted(revoke("alice", "db")).await;
    let batch = journey.world.claimed("token-2").await;
    let _ = journey.world.run(&succeed(batch, "settler")).await;
    let done = rehearsed_then_done(&journey, "set_partition", close.clone()).await;
    assert!(done["after"]["closed_at"].is_string(), "{done}");
    already(&journey, "set_partition", close).await;
    let answer = journey.world.run(&admit(grant("bob", "db"))).await;
    assert!(!matches!(answer, AdmitOutcome::Admitted(_)), "{answer:?}");
    let opened = order(&journey, "set_partition", json!({ "partition": "default", "closed": false })).await;
    assert_eq!((&opened["outcome"], &opened["after"]["closed_at"]), (&json!("done"), &json!(null)), "{opened}");
    journey.world.admitted(grant("bob", "db")).await;
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn an_admission_under_way_is_waited_for_before_the_partition_closes() {
    for capacity in [None, Some(5)] {
        let world = World::new().await.with_target("db", "default", capacity).await;
        let pause = Pause::new("admit", At::BeforeCommit);
        let probed = world.store_probed(pause.clone());
        let admitting = tokio::spawn(async move { probed.run(&admit(grant("alice", "db"))).await });
        pause.reached().await;
        let store = world.store();
        let closing = tokio::spawn(async move { store.run(&closing()).await });
        world.until_somebody_waits_at("target").await;
        pause.release();
        assert!(matches!(admitting.await.expect("no panic"), Ok(AdmitOutcome::Admitted(_))));
        let closed = closing.await.expect("no panic").expect("an outcome");
        assert!(matches!(closed, CommandOutcome::Refused(PartitionRefusal::StillInUse(_))), "{closed:?}");
        world.assert_invariants().await;
    }
}

#[tokio::test]
async fn an_admission_that_comes_while_the_partition_closes_finds_it_closed() {
    let world = World::new().await.with_target("db", "default", None).await;
    let pause = Pause::new("set_partition", At::BeforeCommit);
    let probed = world.store_probed(pause.clone());
    let closing = tokio::spawn(async move { probed.run(&closing()).await });
    pause.reached().await;
    let store = world.store();
    let admitting = tokio::spawn(async move { store.run(&admit(grant("alice", "db"))).await });
    world.until_somebody_waits_at("target").await;
    pause.release();
    assert!(matches!(closing.await.expect("no panic"), Ok(CommandOutcome::Done { .. })));
    let answer = admitting.await.expect("no panic").expect("an outcome");
    assert!(!matches!(answer, AdmitOutcome::Admitted(_)), "{answer:?}");
    assert_eq!(world.count("merge_batch_request").await, 0);
}
