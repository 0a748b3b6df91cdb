//! Our close against the forge's merge, in every order. Git decides: a request is MERGED if and only if it is on the branch.

use std::collections::BTreeMap;
use std::time::Duration;

use adapters::settlement::Progress;
use local::gitlab::{MrState, PipelinePlan, PipelineStatus};
use muster_tests::deadline::until;
use muster_tests::journey::{Journey, stop_at};
use muster_tests::{begin_fail, grant, withdraw};
use serde_json::json;
use shared::ids::BatchId;
use shared::state::FailCause;
use shared::transactions::batch_row::SettleOutcome;

/// Races of one test run, one of each order; `make close-races` runs 500.
const RACES: usize = 5;
/// Past the moment at which a branch has served as a fence.
const FENCED_S: i64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    MergeFirst,
    CloseFirst,
    /// The forge says closed, and the change is on the branch.
    ClosedYetMerged,
    /// The same, a little after we have looked.
    ClosedAndMergedLater,
    /// Nobody knows.
    AtOnce,
}

impl Order {
    const ALL: [Self; 5] = [Self::MergeFirst, Self::CloseFirst, Self::ClosedYetMerged, Self::ClosedAndMergedLater, Self::AtOnce];
}

/// Fails the batch as a time-out would, which closes its merge request, until that has come to an end.
async fn close(journey: &Journey, batch: BatchId) -> Progress {
    assert_eq!(journey.world.run(&begin_fail(batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    until("the end of a batch", async || Some(journey.settle(batch).await).filter(|progress| *progress != Progress::Waiting)).await
}

async fn merge(journey: &Journey, iid: u64) {
    let found = journey.forge.merge_requests().into_iter().find(|found| found.iid == iid).expect("it is there");
    let pipeline = found.pipeline.expect("a pipeline").id;
    journey.forge.end_pipeline(pipeline, PipelineStatus::Success);
}

async fn race(journey: &Journey, number: usize, order: Order) -> (Progress, bool) {
    let subject = format!("subject-{number}");
    let request = journey.world.admitted(grant(&subject, "db")).await;
    let round = journey.round().await;
    assert_eq!(round["outcome"], "claimed", "{round}");
    let batch: BatchId = serde_json::from_value(round["batch_id"].clone()).expect("a batch id");
    let iid: u64 = round["merge_request"]["iid"].as_str().and_then(|iid| iid.parse().ok()).expect("a merge request");
    let state = || journey.forge.merge_requests().into_iter().find(|found| found.iid == iid).expect("it is there").state;
    until("an armed merge request with a pipeline", async || {
        let found = journey.forge.merge_requests().into_iter().find(|found| found.iid == iid)?;
        (found.auto_merge && found.pipeline.is_some()).then_some(())
    })
    .await;
    let progress = match order {
        Order::MergeFirst => {
            merge(journey, iid).await;
            until("the merge", async || (state() == MrState::Merged).then_some(())).await;
            close(journey, batch).await
        }
        Order::CloseFirst => {
            let progress = close(journey, batch).await;
            assert!(!journey.forge.merge_as(iid, "dave").await.expect("an answer"), "a closed one is not merged");
            progress
        }
        Order::ClosedYetMerged | Order::ClosedAndMergedLater => {
            let later = order == Order::ClosedAndMergedLater;
            journey.forge.set_knobs(|knobs| {
                knobs.closed_yet_merged = 1;
                knobs.closed_yet_merged_after_ms = if later { 150 } else { 0 };
            });
            close(journey, batch).await
        }
        Order::AtOnce => {
            let delay = Duration::from_millis(number as u64 % 25);
            let merging = async {
                tokio::time::sleep(delay).await;
                merge(journey, iid).await;
            };
            tokio::join!(close(journey, batch), merging).0
        }
    };
    let on_main = || journey.file_on_main(&format!("access/db/{subject}.json")).is_some();
    if order == Order::ClosedAndMergedLater {
        until("the late merge", async || on_main().then_some(())).await;
    }
    // What was given up and landed all the same is found when its branch goes.
    let later = journey.runner_in(FENCED_S).await;
    let _ = sweep::handle(&later, json!({}), stop_at()).await.expect("a sweep always answers");
    let status = journey.status_of(&request).await;
    assert_eq!(status == "MERGED", on_main(), "{order:?} {number}: {status}, on main: {}", on_main());
    assert_ne!(state(), MrState::Opened, "{order:?} {number}");
    if !on_main() {
        assert_eq!(status, "WAITING", "{order:?} {number}: it was nobody's fault");
        let _ = journey.world.run(&withdraw(&request)).await;
    }
    (progress, on_main())
}

#[tokio::test]
async fn no_merge_is_lost_in_any_order_of_close_and_merge() {
    let races = local::environment::variable("RACES").and_then(|text| text.parse().ok()).unwrap_or(RACES);
    let journey = Journey::new().await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    journey.forge.set_knobs(|knobs| {
        knobs.check_step_ms = 1;
        knobs.pipeline_appears_ms = 1;
    });
    let mut tally: BTreeMap<(Order, bool), u32> = BTreeMap::new();
    for number in 0..races {
        let order = Order::ALL[number % Order::ALL.len()];
        let (progress, landed) = race(&journey, number, order).await;
        let fits = match order {
            Order::MergeFirst | Order::ClosedYetMerged => (progress, landed) == (Progress::Succeeded, true),
            Order::CloseFirst => (progress, landed) == (Progress::Failed, false),
            // On a slow machine it lands before we look.
            Order::ClosedAndMergedLater => landed,
            Order::AtOnce => true,
        };
        assert!(fits, "{order:?} {number}: {progress:?}, landed: {landed}");
        *tally.entry((order, landed)).or_default() += 1;
        if number % 50 == 0 || number + 1 == races {
            journey.world.assert_invariants().await;
        }
    }
    for ((order, landed), count) in &tally {
        println!("{order:?}: {count} {}", if *landed { "landed and are MERGED" } else { "did not land and wait again" });
    }
    println!("close-races: {} races, 0 lost merges", tally.values().sum::<u32>());
}
