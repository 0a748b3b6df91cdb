//! I9, the database's part: an effect has one holder at a time, and is recorded once.

use muster_tests::probes::{At, Pause};
use muster_tests::*;
use serde_json::json;
use shared::ids::BatchId;
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::deliveries::{Delivery, Fate, LeaseDeliveries, LeaseToken, RecordDeliveries, RecordDeliveriesOutcome, Scope};

fn lease(scope: Scope, token: LeaseToken) -> LeaseDeliveries {
    LeaseDeliveries { scope, effects: 100, events: 100, token }
}

fn record(key: String, token: LeaseToken, fate: Fate) -> RecordDeliveries {
    RecordDeliveries { token, fates: vec![(key, fate)] }
}

fn kinds(deliveries: &[Delivery]) -> Vec<&str> {
    let mut kinds: Vec<&str> = deliveries.iter().map(|one| one.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds
}

/// Two effects of one batch: `open_merge_request` and `publish`.
async fn world_with_batch() -> (World, BatchId) {
    let world = World::with_waiting(1).await;
    let batch = world.claimed("round-1").await;
    (world, batch)
}

#[tokio::test]
async fn what_is_due_is_leased_whole_and_to_one_holder() {
    let (world, batch) = world_with_batch().await;
    let leased = world.run(&lease(Scope::Batch(batch), LeaseToken::random())).await;
    assert_eq!(kinds(&leased), ["open_merge_request", "publish"]);
    let open = leased.iter().find(|one| one.kind == "open_merge_request").expect("leased");
    let created_at: String =
        world.scalar("SELECT DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ') FROM outbox WHERE kind = 'open_merge_request'", ()).await;
    let expected = Delivery {
        key: format!("open_merge_request:{}:1", token("round-1").hex()),
        kind: "open_merge_request".to_owned(),
        partition: partition_key("default"),
        batch: Some(batch),
        operation: None,
        payload: json!({}),
        created_at,
        attempts: 1,
    };
    assert_eq!(*open, expected);
    let before = world.snapshot().await;
    assert_eq!(world.run(&lease(Scope::Batch(batch), LeaseToken::random())).await, []);
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn a_pass_over_all_leases_the_oldest_up_to_its_limits() {
    let (world, _) = world_with_batch().await;
    let first = world.run(&LeaseDeliveries { effects: 0, events: 1, ..lease(Scope::All, LeaseToken::random()) }).await;
    // The admission's event came first.
    assert_eq!(first.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), [format!("request.admitted:{}:1", world.waiting[0])]);
    let rest = world.run(&LeaseDeliveries { effects: 1, events: 1, ..lease(Scope::All, LeaseToken::random()) }).await;
    assert_eq!(kinds(&rest), ["open_merge_request", "publish"]);
}

#[tokio::test]
async fn a_backlog_of_events_keeps_no_effect_from_being_leased() {
    let world = World::with_waiting(12).await;
    let batch = world.claimed("round-1").await;
    for scope in [Scope::All, Scope::Batch(batch)] {
        let token = LeaseToken::random();
        let leased = world.run(&LeaseDeliveries { effects: 1, events: 1, ..lease(scope, token) }).await;
        assert_eq!(kinds(&leased), ["open_merge_request", "publish"]);
        for one in leased {
            assert_eq!(world.run(&record(one.key, token, Fate::Returned)).await, RecordDeliveriesOutcome::Recorded { lost: 0 });
        }
    }
}

#[tokio::test]
async fn a_set_is_recorded_by_its_fates_and_what_was_lost_is_counted() {
    let world = World::with_waiting(5).await;
    let token = LeaseToken::random();
    let leased = world.run(&lease(Scope::All, token)).await;
    let mut fates: Vec<(String, Fate)> = leased.into_iter().map(|one| (one.key, Fate::Delivered)).collect();
    fates[1].1 = Fate::Postponed { delay_s: 60, error: "busy".to_owned() };
    fates[2].1 = Fate::Returned;
    fates[3].1 = Fate::GivenUp { error: "no".to_owned() };
    world.sql("UPDATE outbox SET lease_token = REPEAT('x', 16) WHERE dedup_key = ?", (&fates[4].0,)).await;
    let unit = RecordDeliveries { token, fates: fates.clone() };
    assert_eq!(world.run(&unit).await, RecordDeliveriesOutcome::Recorded { lost: 1 });
    let state = "SELECT CONCAT_WS(' ', dedup_key, delivered_at IS NOT NULL, given_up_at IS NOT NULL, attempts, lease_token IS NULL, \
                 COALESCE(last_error, '-'), due_at > CURRENT_TIMESTAMP(6) + INTERVAL 50 SECOND) FROM outbox ORDER BY dedup_key";
    let wanted = ["1 0 1 1 - 0", "0 0 1 1 busy 1", "0 0 0 1 - 0", "0 1 1 1 no 0", "0 0 1 0 - 0"];
    let wanted: Vec<String> = fates.iter().zip(wanted).map(|((key, _), rest)| format!("{key} {rest}")).collect();
    assert_eq!(world.rows::<(String,)>(state, ()).await.into_iter().map(|(row,)| row).collect::<Vec<_>>(), wanted);
    let before = world.snapshot().await;
    assert_eq!(world.run(&unit).await, RecordDeliveriesOutcome::LeaseLost);
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn rows_that_another_relay_is_leasing_are_skipped_and_not_waited_for() {
    let (world, batch) = world_with_batch().await;
    let pause = Pause::new("lease_deliveries", At::BeforeCommit);
    let store = world.store_probed(pause.clone());
    let first = tokio::spawn(async move { store.run(&lease(Scope::Batch(batch), LeaseToken::random())).await });
    pause.reached().await;
    let second = world.run(&lease(Scope::All, LeaseToken::random())).await;
    assert_eq!(kinds(&second), ["publish"], "only the admission's event is free");
    pause.release();
    assert_eq!(kinds(&first.await.expect("no panic").expect("an outcome")), ["open_merge_request", "publish"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_16_relays_at_once_each_effect_goes_to_one() {
    let world = World::with_waiting(20).await;
    let store = world.store_patient(16);
    let relays: Vec<_> = (0..16)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.run(&lease(Scope::All, LeaseToken::random())).await })
        })
        .collect();
    let mut keys = Vec::new();
    for relay in relays {
        let leased = relay.await.expect("no panic").expect("an outcome, not an error");
        keys.extend(leased.into_iter().map(|one| one.key));
    }
    keys.sort_unstable();
    let all: Vec<String> = world.rows("SELECT dedup_key FROM outbox ORDER BY dedup_key", ()).await;
    assert_eq!(keys, all);
    assert_eq!(world.count("outbox WHERE attempts <> 1").await, 0);
}

#[tokio::test]
async fn a_delivered_effect_is_never_leased_again() {
    let (world, batch) = world_with_batch().await;
    let token = LeaseToken::random();
    for one in world.run(&lease(Scope::Batch(batch), token)).await {
        let unit = record(one.key, token, Fate::Delivered);
        assert_eq!(world.run(&unit).await, RecordDeliveriesOutcome::Recorded { lost: 0 });
        assert_eq!(world.run(&unit).await, RecordDeliveriesOutcome::LeaseLost);
    }
    let in_a_year = world.store_in(365 * 86_400).await;
    assert_eq!(in_a_year.run(&lease(Scope::Batch(batch), LeaseToken::random())).await.expect("an outcome"), []);
}

#[tokio::test]
async fn a_postponed_effect_is_due_again_after_its_delay_with_its_attempts_counted() {
    let (world, batch) = world_with_batch().await;
    let token = LeaseToken::random();
    let leased = world.run(&lease(Scope::Batch(batch), token)).await;
    for one in &leased {
        let fate = Fate::Postponed { delay_s: 60, error: "ü".repeat(2000) };
        assert_eq!(world.run(&record(one.key.clone(), token, fate)).await, RecordDeliveriesOutcome::Recorded { lost: 0 });
    }
    assert_eq!(world.count("outbox WHERE last_error = REPEAT('ü', 1024) AND lease_token IS NULL").await, 2);
    assert_eq!(world.store_in(50).await.run(&lease(Scope::Batch(batch), LeaseToken::random())).await.expect("an outcome"), []);
    let again = world.store_in(61).await.run(&lease(Scope::Batch(batch), LeaseToken::random())).await.expect("an outcome");
    assert_eq!(again.iter().map(|one| one.attempts).collect::<Vec<_>>(), [2, 2]);
}

#[tokio::test]
async fn an_effect_that_was_given_up_is_never_leased_again() {
    let (world, batch) = world_with_batch().await;
    let token = LeaseToken::random();
    for one in world.run(&lease(Scope::Batch(batch), token)).await {
        let unit = record(one.key, token, Fate::GivenUp { error: "no such project".to_owned() });
        assert_eq!(world.run(&unit).await, RecordDeliveriesOutcome::Recorded { lost: 0 });
    }
    assert_eq!(world.count("outbox WHERE given_up_at IS NOT NULL AND delivered_at IS NULL AND last_error = 'no such project'").await, 2);
    let in_a_year = world.store_in(365 * 86_400).await;
    assert_eq!(in_a_year.run(&lease(Scope::Batch(batch), LeaseToken::random())).await.expect("an outcome"), []);
}

#[tokio::test]
async fn a_lease_that_ran_out_passes_to_the_next_and_its_first_holder_records_nothing() {
    let (world, batch) = world_with_batch().await;
    let first = LeaseToken::random();
    let leased = world.run(&lease(Scope::Batch(batch), first)).await;
    let open = leased.into_iter().find(|one| one.kind == "open_merge_request").expect("leased").key;
    assert_eq!(world.store_in(85).await.run(&lease(Scope::Batch(batch), LeaseToken::random())).await.expect("an outcome"), []);
    let second = LeaseToken::random();
    let again = world.store_in(91).await.run(&lease(Scope::Batch(batch), second)).await.expect("an outcome");
    assert_eq!(kinds(&again), ["open_merge_request", "publish"]);
    let before = world.snapshot().await;
    for fate in [Fate::Delivered, Fate::Postponed { delay_s: 1, error: "late".to_owned() }, Fate::GivenUp { error: "late".to_owned() }] {
        let unit = record(open.clone(), first, fate);
        assert_eq!(world.run(&unit).await, RecordDeliveriesOutcome::LeaseLost);
    }
    assert_eq!(world.snapshot().await, before);
    assert_eq!(world.run(&record(open, second, Fate::Delivered)).await, RecordDeliveriesOutcome::Recorded { lost: 0 });
}

#[tokio::test]
async fn a_branch_is_not_deleted_before_every_runner_that_may_know_it_has_ended() {
    let (world, batch) = world_with_batch().await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    let is_due = async |seconds| {
        let leased = world.store_in(seconds).await.run(&lease(Scope::Batch(batch), LeaseToken::random())).await.expect("an outcome");
        kinds(&leased).contains(&"delete_branch")
    };
    assert!(!is_due(350).await);
    assert!(is_due(365).await);
}
