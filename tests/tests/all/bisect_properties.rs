//! Whatever members are bad: each is convicted, every other one lands, and nothing is taken or tried beyond its limit.

use std::collections::{BTreeMap, BTreeSet};

use muster_tests::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use shared::decide::bisect::peer_limit;
use shared::decide::claim_set::{Candidate, ClaimLimits, Suspect, choose};
use shared::ids::{ClaimToken, OperationId};
use shared::state::FailCause;
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::{Claim, ClaimOutcome};

/// Members of one round at most, as of a new partition's batches of 64.
const MAX_REQUESTS: usize = 64;
/// ceil(log2(64)) + 1: what a partition of such rounds must allow at least.
const ATTEMPTS_MAX: u64 = 7;

/// What became of a waiting set, decided by the two pure functions that claim and fail decide by.
#[derive(Debug, Default)]
struct Course {
    pipelines: usize,
    convicted: BTreeSet<u64>,
    landed: BTreeSet<u64>,
    attempts: BTreeMap<u64, u64>,
}

/// Rounds over `requests` fresh ones until none waits; a pipeline fails if and only if a bad one is in its batch.
fn land_all(requests: u64, bad: &BTreeSet<u64>) -> Course {
    let operation = OperationId::new();
    let fresh = |row| Candidate { row, operation: operation.clone(), bytes: 1, waited_s: 0, suspect: None };
    let mut waiting: Vec<Candidate> = (1..=requests).map(fresh).collect();
    let (limits, nothing_touched) = (ClaimLimits { max_requests: MAX_REQUESTS, max_bytes: u64::MAX }, BTreeMap::new());
    let mut course = Course::default();
    let mut last_was_suspects = false;
    for batch in 1.. {
        let chosen = choose(&waiting, &nothing_touched, limits, last_was_suspects);
        if chosen.members.is_empty() {
            assert!(waiting.is_empty(), "they wait, and nobody is claimed: {waiting:?}");
            return course;
        }
        assert!(batch < 10_000, "the rounds do not end");
        last_was_suspects = chosen.suspect_of.is_some();
        for member in &chosen.members {
            assert_eq!(member.suspect.map(|suspect| suspect.of), chosen.suspect_of, "suspects of one batch, or fresh ones");
            let limit = member.suspect.map_or(MAX_REQUESTS as u64, |suspect| suspect.peer_limit);
            assert!(chosen.members.len() as u64 <= limit, "{} are claimed where one allows {limit}", chosen.members.len());
        }
        course.pipelines += 1;
        let members: BTreeSet<u64> = chosen.members.iter().map(|one| one.row).collect();
        if members.is_disjoint(bad) {
            waiting.retain(|one| !members.contains(&one.row));
            course.landed.extend(members);
            continue;
        }
        for &row in &members {
            *course.attempts.entry(row).or_default() += 1;
        }
        if members.len() == 1 {
            waiting.retain(|one| !members.contains(&one.row));
            course.convicted.extend(members);
            continue;
        }
        for one in waiting.iter_mut().filter(|one| members.contains(&one.row)) {
            one.suspect = Some(Suspect { of: batch, peer_limit: peer_limit(members.len(), course.attempts[&one.row], ATTEMPTS_MAX) });
        }
    }
    course
}

fn requests_and_bad() -> impl Strategy<Value = (u64, BTreeSet<u64>)> {
    (1_u64..=64).prop_flat_map(|requests| (Just(requests), prop::collection::btree_set(1..=requests, 0..=requests as usize)))
}

#[test]
fn any_set_of_bad_ones_among_up_to_64_is_convicted_and_every_other_one_lands() {
    let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
    let holds = runner.run(&requests_and_bad(), |(requests, bad)| {
        let course = land_all(requests, &bad);
        let innocent: BTreeSet<u64> = (1..=requests).filter(|row| !bad.contains(row)).collect();
        prop_assert_eq!(&course.convicted, &bad);
        prop_assert_eq!(&course.landed, &innocent);
        let most = course.attempts.values().max().copied().unwrap_or(0);
        // One more than the limit: whoever reaches it is tried alone once.
        prop_assert!(most <= ATTEMPTS_MAX, "a member was tried {} times", most);
        // Each bad one alone costs two pipelines on each level of halving, at most.
        let levels = u64::BITS - (requests.max(1) - 1).leading_zeros();
        let bound = 1 + bad.len() * 2 * levels as usize;
        prop_assert!(course.pipelines <= bound.max(requests as usize * 2), "{} pipelines, {} bad", course.pipelines, bad.len());
        Ok(())
    });
    holds.unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn one_bad_of_32_costs_11_pipelines_at_most_wherever_it_stands() {
    for bad in 1..=32 {
        let course = land_all(32, &BTreeSet::from([bad]));
        assert!(course.pipelines <= 11, "{} pipelines with the bad one at {bad}", course.pipelines);
    }
}

/// The same through the transactions, a few times: they feed the two functions with what the database holds.
#[tokio::test]
async fn a_few_sets_of_bad_ones_are_convicted_in_the_database() {
    let sets: [(usize, &[usize]); 3] = [(13, &[0, 1, 12]), (9, &[0, 1, 2, 3, 4, 5, 6, 7, 8]), (16, &[7, 8])];
    for (requests, bad) in sets {
        let world = World::with_waiting(requests).await;
        world.sql("UPDATE merge_partition SET max_requests = 16, content_attempts = 5", ()).await;
        let is_bad: BTreeSet<&OperationId> = bad.iter().map(|&at| &world.waiting[at]).collect();
        loop {
            let limits = "SELECT COALESCE(MIN(peer_limit), 1000) FROM merge_batch_request WHERE batch_id IS NULL AND suspect_of = ?";
            let (batch, members) = match world.run(&Claim { token: ClaimToken::random(), ..claim("") }).await {
                ClaimOutcome::Claimed { batch, members } => (batch, members),
                ClaimOutcome::NothingToClaim => break,
                other => panic!("{other:?}"),
            };
            let suspect_of: Option<u64> = world.scalar("SELECT suspect_of FROM merge_batch WHERE id = ?", (batch,)).await;
            if let Some(suspect_of) = suspect_of {
                let others: u64 = world.scalar(limits, (suspect_of,)).await;
                let own: u64 = world.scalar("SELECT MIN(peer_limit) FROM merge_batch_request WHERE batch_id = ?", (batch,)).await;
                assert!(members.len() as u64 <= own.min(others.max(own)), "{} members, {own} allowed", members.len());
            }
            if members.iter().any(|member| is_bad.contains(member)) {
                assert_eq!(world.run(&begin_fail(batch, FailCause::Content)).await, SettleOutcome::Settled);
                assert_eq!(world.run(&fail(batch, "settler")).await, SettleOutcome::Settled);
            } else {
                assert_eq!(world.run(&succeed(batch, "settler")).await, SettleOutcome::Settled);
            }
        }
        let failed: Vec<String> = world.rows("SELECT operation_id FROM operation WHERE status = 5", ()).await;
        assert_eq!(failed.iter().map(String::as_str).collect::<BTreeSet<_>>(), is_bad.iter().map(|id| id.as_str()).collect());
        assert_eq!(world.count("operation WHERE status = 3").await, (requests - bad.len()) as u64);
        assert_eq!(world.count("merge_batch_request WHERE content_attempts > 5").await, 0);
        world.assert_invariants().await;
    }
}
