//! What one round takes, in which order, and what it answers instead.

use muster_tests::*;
use serde_json::json;
use shared::ids::{BatchId, OperationId};
use shared::read::waiting::{Prospect, prospect};
use shared::request::Request;
use shared::state::Trigger;
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::{Claim, ClaimOutcome};

fn grant_with_priority(subject: &str, priority: u8) -> Request {
    request(&json!({ "subject_id": subject, "target_key": "db", "action": "grant", "priority": priority }))
}

/// The members of a claim that must succeed.
async fn members(world: &World, unit: &Claim) -> Vec<OperationId> {
    match world.run(unit).await {
        ClaimOutcome::Claimed { members, .. } => members,
        other => panic!("not claimed: {other:?}"),
    }
}

/// Runs the claim, which must answer this and change nothing.
async fn refused(world: &World, unit: &Claim, outcome: ClaimOutcome) {
    let before = world.snapshot().await;
    assert_eq!(world.run(unit).await, outcome);
    assert_eq!(world.snapshot().await, before);
}

#[tokio::test]
async fn a_claim_moves_its_members_and_wishes_for_a_merge_request() {
    let world = World::with_waiting(3).await;
    let ClaimOutcome::Claimed { batch, members } = world.run(&claim("round-1")).await else { panic!("not claimed") };
    assert_eq!(members, world.waiting);
    let batches = "SELECT CONCAT_WS(' ', id, partition_key, status, active_slot, LOWER(HEX(claim_token)), trigger_kind, requested_by, step, version) FROM merge_batch";
    let token = token("round-1").hex();
    assert_eq!(world.rows::<String>(batches, ()).await, [format!("{batch} default 1 1 {token} 2 {OPERATOR} claimed 1")]);
    let positions =
        "SELECT CONCAT_WS(' ', batch_id, operation_id, position, IFNULL(outcome, '-')) FROM merge_batch_member ORDER BY position";
    let expected: Vec<_> = members.iter().enumerate().map(|(at, id)| format!("{batch} {id} {at} -")).collect();
    assert_eq!(world.rows::<String>(positions, ()).await, expected);
    assert_eq!(world.count(&format!("operation WHERE status = 2 AND batch_id = {batch} AND version = 2")).await, 3);
    assert_eq!(world.count(&format!("merge_batch_request WHERE batch_id = {batch} AND version = 2")).await, 3);
    assert_eq!(world.effects_of(batch).await, ["batch.claimed 1", "open_merge_request 1"]);
    world.assert_invariants().await;
}

#[tokio::test]
async fn the_oldest_come_first_and_a_priority_is_worth_five_minutes_a_step() {
    let world = World::new().await;
    let in_the_past = world.store_in(-46 * 60).await;
    let old = admit(grant("old", "db"));
    in_the_past.run(&old).await.map(drop).expect("an outcome");
    let plain = world.admitted(grant("plain", "db")).await;
    let low = world.admitted(grant_with_priority("low", 1)).await;
    let high = world.admitted(grant_with_priority("high", 9)).await;
    // 45 minutes ahead, and yet behind the one that has waited for 46.
    assert_eq!(members(&world, &claim("round-1")).await, [old.operation, high, low, plain]);
}

#[tokio::test]
async fn a_round_takes_at_most_max_requests_and_the_caller_can_only_lower_it() {
    let world = World::with_waiting(7).await;
    world.sql("UPDATE merge_partition SET max_requests = 3", ()).await;
    let mut taken = Vec::new();
    for (round, (asked, got)) in [(Some(2), 2), (Some(100), 3), (None, 2)].into_iter().enumerate() {
        let unit = Claim { max_requests: asked, ..claim(&format!("round-{round}")) };
        let ClaimOutcome::Claimed { batch, members } = world.run(&unit).await else { panic!("not claimed") };
        assert_eq!(members.len(), got);
        taken.extend(members);
        assert_eq!(world.run(&succeed(batch, "settler")).await, SettleOutcome::Settled);
    }
    assert_eq!(taken, world.waiting);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_round_takes_at_most_max_bytes_but_always_the_first() {
    let world = World::new().await;
    world.sql("UPDATE merge_partition SET max_bytes = 262144", ()).await;
    let mut ids = Vec::new();
    for (number, bytes) in [300_000, 200_000, 50_000, 50_000].into_iter().enumerate() {
        let request = grant_of_file(&format!("subject-{number}"), "db", &format!("access/{number}"), &"x".repeat(bytes));
        ids.push(world.admitted(request).await);
    }
    let mut rounds = Vec::new();
    for round in ["round-1", "round-2", "round-3"] {
        let ClaimOutcome::Claimed { batch, members } = world.run(&claim(round)).await else { panic!("not claimed") };
        assert_eq!(world.run(&succeed(batch, round)).await, SettleOutcome::Settled);
        rounds.push(members);
    }
    assert_eq!(rounds, [vec![ids[0].clone()], vec![ids[1].clone(), ids[2].clone()], vec![ids[3].clone()]]);
}

#[tokio::test]
async fn of_requests_that_touch_one_path_the_later_waits_for_the_next_round() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for (subject, path) in [("a", "access/x"), ("b", "access/x"), ("c", "access/x/y"), ("d", "access/x-y"), ("e", "access/X")] {
        ids.push(world.admitted(grant_of_file(subject, "db", path, "")).await);
    }
    let ClaimOutcome::Claimed { batch, members } = world.run(&claim("round-1")).await else { panic!("not claimed") };
    assert_eq!(members, [ids[0].clone(), ids[3].clone(), ids[4].clone()]);
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    let ClaimOutcome::Claimed { members, .. } = world.run(&claim("round-2")).await else { panic!("not claimed") };
    assert_eq!(members, [ids[1].clone()]);
    world.assert_invariants().await;
}

#[tokio::test]
async fn the_slot_is_occupied_while_a_batch_is_running_and_while_it_is_blocked() {
    let world = World::with_waiting(2).await;
    let ClaimOutcome::Claimed { batch, .. } = world.run(&Claim { max_requests: Some(1), ..claim("round-1") }).await else {
        panic!("not claimed")
    };
    refused(&world, &claim("round-2"), ClaimOutcome::SlotOccupied { batch }).await;
    assert_eq!(world.run(&block(batch)).await, SettleOutcome::Settled);
    refused(&world, &claim("round-3"), ClaimOutcome::SlotOccupied { batch }).await;
}

#[tokio::test]
async fn a_neighbouring_partition_has_a_slot_of_its_own() {
    let world = World::with_waiting(1).await.with_partition("team-a").await.with_target("queue", "team-a", None).await;
    let theirs = world.admitted(grant("alice", "queue")).await;
    let ours = world.waiting[0].clone();
    assert_eq!(members(&world, &claim_of("team-a", "round-a")).await, [theirs]);
    assert_eq!(members(&world, &claim("round-d")).await, [ours]);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_redelivered_trigger_finds_its_own_claim_even_after_it_was_settled() {
    let world = World::with_waiting(3).await;
    let ClaimOutcome::Claimed { batch, members } = world.run(&claim("round-1")).await else { panic!("not claimed") };
    let already = ClaimOutcome::AlreadyClaimed { batch, members };
    refused(&world, &claim("round-1"), already.clone()).await;
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    world.admitted(grant("late", "db")).await;
    refused(&world, &claim("round-1"), already).await;
}

#[tokio::test]
async fn an_idle_round_leaves_no_batch() {
    let world = World::new().await;
    refused(&world, &claim("round-1"), ClaimOutcome::NothingToClaim).await;
}

#[tokio::test]
async fn an_unknown_partition() {
    let world = World::with_waiting(1).await;
    refused(&world, &claim_of("nowhere", "round-1"), ClaimOutcome::UnknownPartition).await;
}

#[tokio::test]
async fn a_paused_partition_is_not_claimed_until_its_pause_ends() {
    let world = World::with_waiting(1).await;
    world.sql("UPDATE merge_partition SET pause_reason = 'freeze', pause_by = 'operator'", ()).await;
    refused(&world, &claim("round-1"), ClaimOutcome::Paused { reason: "freeze".to_owned() }).await;
    world.sql("UPDATE merge_partition SET pause_until = CURRENT_TIMESTAMP(6) + INTERVAL 1 HOUR", ()).await;
    refused(&world, &claim("round-1"), ClaimOutcome::Paused { reason: "freeze".to_owned() }).await;
    let after_the_pause = world.store_in(3601).await;
    let outcome = after_the_pause.run(&claim("round-1")).await.expect("an outcome");
    assert!(matches!(outcome, ClaimOutcome::Claimed { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_scheduled_round_is_held_back_until_enough_wait_or_one_waits_long_enough() {
    let world = World::with_waiting(2).await;
    world.sql("UPDATE merge_partition SET min_requests = 3, max_wait_s = 300", ()).await;
    let scheduled = |token| Claim { trigger: Trigger::Scheduled, ..claim(token) };
    refused(&world, &scheduled("round-1"), ClaimOutcome::HeldBack).await;
    let before_the_limit = world.store_in(290).await;
    assert_eq!(before_the_limit.run(&scheduled("round-1")).await.expect("an outcome"), ClaimOutcome::HeldBack);
    let at_the_limit = world.store_in(301).await;
    let outcome = at_the_limit.run(&scheduled("round-1")).await.expect("an outcome");
    let ClaimOutcome::Claimed { batch, members } = outcome else { panic!("not claimed: {outcome:?}") };
    assert_eq!(members, world.waiting);
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    for number in 0..3 {
        world.admitted(grant(&format!("next-{number}"), "db")).await;
    }
    assert_eq!(self::members(&world, &scheduled("round-2")).await.len(), 3);
}

#[tokio::test]
async fn a_manual_round_ignores_how_few_wait() {
    let world = World::with_waiting(1).await;
    world.sql("UPDATE merge_partition SET min_requests = 3", ()).await;
    assert_eq!(members(&world, &claim("round-1")).await, world.waiting);
}

#[tokio::test]
async fn a_grant_that_expired_while_it_waited_is_never_claimed() {
    let world = World::new().await;
    let body = json!({ "subject_id": "brief", "target_key": "db", "action": "grant", "expires_at": "2999-01-01T00:00:00Z" });
    world.admitted(request(&body)).await;
    world.sql("UPDATE merge_batch_request SET expires_at = CURRENT_TIMESTAMP(6)", ()).await;
    refused(&world, &claim("round-1"), ClaimOutcome::NothingToClaim).await;
    let lasting = world.admitted(grant("lasting", "db")).await;
    assert_eq!(members(&world, &claim("round-1")).await, [lasting]);
}

#[tokio::test]
async fn a_request_of_the_future_waits_for_its_time() {
    let world = World::new().await;
    let ahead = world.store_in(60).await;
    let unit = admit(grant("alice", "db"));
    ahead.run(&unit).await.map(drop).expect("an outcome");
    refused(&world, &claim("round-1"), ClaimOutcome::NothingToClaim).await;
    let later = world.store_in(61).await;
    let outcome = later.run(&claim("round-1")).await.expect("an outcome");
    assert!(matches!(outcome, ClaimOutcome::Claimed { members, .. } if members == [unit.operation]));
}

#[tokio::test]
async fn the_look_before_the_claim_sees_what_the_claim_would_meet() {
    let world = World::with_waiting(3).await;
    let store = world.store();
    let look = async |key: &str, max| prospect(&store, &partition_key(key), max).await.expect("a look");
    let before = world.snapshot().await;
    assert_eq!(look("nowhere", None).await, Prospect::UnknownPartition);
    assert_eq!(look("default", Some(2)).await, Prospect::Claimable { members: world.waiting[..2].to_vec() });
    assert_eq!(look("default", None).await, Prospect::Claimable { members: world.waiting.clone() });
    assert_eq!(world.snapshot().await, before);
    let batch: BatchId = world.claimed("round-1").await;
    assert_eq!(look("default", None).await, Prospect::SlotOccupied { batch });
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    assert_eq!(look("default", None).await, Prospect::NothingToClaim);
    world.sql("UPDATE merge_partition SET pause_reason = 'freeze', pause_by = 'operator'", ()).await;
    assert_eq!(look("default", None).await, Prospect::Paused { reason: "freeze".to_owned() });
}

#[tokio::test]
async fn a_large_claim_grows_by_chunks_and_not_by_members() {
    let world = World::with_waiting(40).await;
    let few = muster_tests::probes::Count::new();
    let unit = Claim { max_requests: Some(1), ..claim("round-1") };
    let outcome = world.store_probed(few.clone()).run(&unit).await.expect("an outcome");
    let ClaimOutcome::Claimed { batch, .. } = outcome else { panic!("not claimed: {outcome:?}") };
    assert_eq!(world.run(&succeed(batch, "settler-1")).await, SettleOutcome::Settled);
    let many = muster_tests::probes::Count::new();
    let outcome = world.store_probed(many.clone()).run(&claim("round-2")).await.expect("an outcome");
    assert!(matches!(outcome, ClaimOutcome::Claimed { members, .. } if members.len() == 39));
    assert_eq!(many.statements(), few.statements());
}
