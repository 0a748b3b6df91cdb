//! A batch of several that fails by its content is halved until one alone is convicted; the others land.

use std::collections::BTreeSet;

use muster_tests::*;
use shared::ids::{BatchId, ClaimToken, OperationId};
use shared::state::{FailCause, Trigger};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::{Claim, ClaimOutcome};
use shared::transactions::withdraw::WithdrawOutcome;

async fn next_round(world: &World) -> Option<(BatchId, Vec<OperationId>)> {
    match world.run(&Claim { token: ClaimToken::random(), ..claim("") }).await {
        ClaimOutcome::Claimed { batch, members } => Some((batch, members)),
        ClaimOutcome::NothingToClaim => None,
        other => panic!("{other:?}"),
    }
}

async fn fail_by_content(world: &World, batch: BatchId) {
    assert_eq!(world.run(&begin_fail(batch, FailCause::Content)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler")).await, SettleOutcome::Settled);
}

/// Runs rounds until nothing waits: a pipeline fails if and only if a bad member is in its batch. Answers their number.
async fn land_all(world: &World, bad: &BTreeSet<OperationId>) -> u32 {
    let mut pipelines = 0;
    while let Some((batch, members)) = next_round(world).await {
        pipelines += 1;
        if members.iter().any(|member| bad.contains(member)) {
            fail_by_content(world, batch).await;
        } else {
            assert_eq!(world.run(&succeed(batch, "settler")).await, SettleOutcome::Settled);
        }
        assert!(pipelines < 200, "the rounds do not end");
    }
    world.assert_invariants().await;
    pipelines
}

async fn failed(world: &World) -> BTreeSet<OperationId> {
    let ids: Vec<String> = world.rows("SELECT operation_id FROM operation WHERE status = 5", ()).await;
    ids.into_iter().map(|id| OperationId::parse(id).expect("an id")).collect()
}

#[tokio::test]
async fn one_bad_of_32_is_found_in_at_most_11_pipelines_wherever_it_stands() {
    for position in [0, 21] {
        let world = World::with_waiting(32).await;
        let bad = BTreeSet::from([world.waiting[position].clone()]);
        let pipelines = land_all(&world, &bad).await;
        assert!(pipelines <= 11, "{pipelines} pipelines with the bad one at {position}");
        assert_eq!(failed(&world).await, bad);
        assert_eq!(world.count("operation WHERE status = 3").await, 31);
    }
}

#[tokio::test]
async fn every_bad_one_is_found_and_every_good_one_lands() {
    let world = World::with_waiting(20).await;
    let bad: BTreeSet<OperationId> = [1, 2, 11, 19].map(|position| world.waiting[position].clone()).into();
    land_all(&world, &bad).await;
    assert_eq!(failed(&world).await, bad);
    assert_eq!(world.count("operation WHERE status = 3").await, 16);
}

#[tokio::test]
async fn a_content_failure_of_several_convicts_nobody_and_starts_the_next_round_at_once() {
    let world = World::with_waiting(5).await;
    let (batch, _) = next_round(&world).await.expect("a round");
    let standing = "SELECT CONCAT_WS(' ', id, created_at, rank_at) FROM merge_batch_request ORDER BY id";
    let before: Vec<String> = world.rows(standing, ()).await;
    fail_by_content(&world, batch).await;
    assert_eq!(world.rows::<String>(standing, ()).await, before);
    let rows =
        "SELECT CONCAT_WS(' ', IFNULL(batch_id, '-'), suspect_of, peer_limit, content_attempts, infra_attempts) FROM merge_batch_request";
    assert_eq!(world.rows::<String>(rows, ()).await, vec![format!("- {batch} 3 1 0"); 5]);
    assert_eq!(world.count("operation WHERE status = 1 AND code = 'pipeline_failed'").await, 5);
    assert_eq!(world.count("binding WHERE status = 1").await, 5);
    let effects =
        ["batch.claimed 1", "batch.failed 3", "delete_branch 3", "open_merge_request 1", "start_round 3", "withdraw_merge_request 2"];
    assert_eq!(world.effects_of(batch).await, effects);
    world.assert_invariants().await;
}

#[tokio::test]
async fn suspects_and_fresh_requests_take_turns() {
    let world = World::with_waiting(4).await;
    let (first, _) = next_round(&world).await.expect("a round");
    fail_by_content(&world, first).await;
    let fresh = [world.admitted(grant("fresh-1", "db")).await, world.admitted(grant("fresh-2", "db")).await];
    let mut rounds = Vec::new();
    while let Some((batch, members)) = next_round(&world).await {
        let suspect_of: Option<u64> = world.scalar("SELECT suspect_of FROM merge_batch WHERE id = ?", (batch.0,)).await;
        assert_eq!(suspect_of, members.iter().all(|member| !fresh.contains(member)).then_some(first.0));
        rounds.push(members);
        assert_eq!(world.run(&succeed(batch, "settler")).await, SettleOutcome::Settled);
    }
    assert_eq!(rounds, [world.waiting[..2].to_vec(), fresh.to_vec(), world.waiting[2..].to_vec()]);
}

#[tokio::test]
async fn suspects_are_not_held_back_by_how_few_they_are() {
    let world = World::with_waiting(2).await;
    let (batch, _) = next_round(&world).await.expect("a round");
    fail_by_content(&world, batch).await;
    world.sql("UPDATE merge_partition SET min_requests = 50, max_wait_s = 3600", ()).await;
    let outcome = world.run(&Claim { trigger: Trigger::Scheduled, ..claim("scheduled") }).await;
    assert!(matches!(&outcome, ClaimOutcome::Claimed { members, .. } if *members == world.waiting[..1]), "{outcome:?}");
}

#[tokio::test]
async fn an_infrastructure_failure_neither_halves_nor_blames_suspects() {
    let world = World::with_waiting(4).await;
    let (first, _) = next_round(&world).await.expect("a round");
    fail_by_content(&world, first).await;
    let (second, members) = next_round(&world).await.expect("a round");
    assert_eq!(world.run(&begin_fail(second, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(second, "settler")).await, SettleOutcome::Settled);
    let rows = "SELECT CONCAT_WS(' ', suspect_of, peer_limit, content_attempts, infra_attempts) FROM merge_batch_request ORDER BY id";
    let expected = [1, 1, 0, 0].map(|infra_attempts| format!("{first} 2 1 {infra_attempts}"));
    assert_eq!(world.rows::<String>(rows, ()).await, expected);
    let (_, again) = next_round(&world).await.expect("a round");
    assert_eq!(again, members);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_suspect_that_is_withdrawn_leaves_the_bisection() {
    let world = World::with_waiting(3).await;
    let (batch, _) = next_round(&world).await.expect("a round");
    assert!(matches!(world.run(&withdraw(&world.waiting[0])).await, WithdrawOutcome::Noted { .. }));
    fail_by_content(&world, batch).await;
    assert_eq!(world.count("operation WHERE status = 6").await, 1);
    assert_eq!(world.run(&withdraw(&world.waiting[1])).await, WithdrawOutcome::Withdrawn);
    let (batch, members) = next_round(&world).await.expect("a round");
    assert_eq!(members, world.waiting[2..]);
    fail_by_content(&world, batch).await;
    assert_eq!(failed(&world).await, BTreeSet::from([world.waiting[2].clone()]));
    world.assert_invariants().await;
}

#[tokio::test]
async fn whoever_has_failed_as_often_as_allowed_is_tried_alone() {
    let world = World::with_waiting(8).await;
    world.sql("UPDATE merge_batch_request SET content_attempts = 7 WHERE operation_id = ?", (&world.waiting[0],)).await;
    let (batch, _) = next_round(&world).await.expect("a round");
    fail_by_content(&world, batch).await;
    let limits = "SELECT peer_limit FROM merge_batch_request ORDER BY id";
    assert_eq!(world.rows::<u64>(limits, ()).await, [1, 4, 4, 4, 4, 4, 4, 4]);
    let (_, members) = next_round(&world).await.expect("a round");
    assert_eq!(members, world.waiting[..1]);
}
