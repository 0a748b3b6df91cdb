//! A function that was frozen, and comes back when its batch is long over.

use std::time::Duration;

use local::gitlab::{MrState, PipelinePlan, PipelineStatus};
use muster_tests::crash::cell::plan;
use muster_tests::crash::matrix::counted;
use muster_tests::crash::parent::{self, End};
use muster_tests::crash::{Answer, Halt, Plan, Story};
use muster_tests::deadline::{until, within};
use muster_tests::journey::{Journey, stop_at};
use serde_json::json;

/// Past every time limit of a batch.
const MUCH_LATER_S: i64 = 7_200;

/// Freezes a round at a boundary, lets the sweep give its batch up and another round take the requests, and revives it.
async fn comes_back_to_nothing(label: &str) {
    let course = counted(Story::Round, Answer::Ok, 0).await.outcome.boundaries;
    let at = course.iter().position(|met| met == label).unwrap_or_else(|| panic!("no {label} in {course:#?}")) + 1;
    let journey = Journey::new().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (log, spool) = (folder.path().join("boundaries"), folder.path().join("events"));
    let invocation = Story::Round.prepare(&journey).await;
    journey.forge.set_pipeline(PipelinePlan::Hang);
    let plan = plan(&journey, &invocation, Duration::from_secs(15), log, spool).await;
    let plan = Plan { halt: Some((at as u32, Halt::Freeze)), ..plan };
    let frozen = parent::start(&plan);
    parent::until_frozen(&frozen).await;
    assert_eq!(parent::boundaries(&plan.log).last().map(String::as_str), Some(label));

    let later = journey.runner_in(MUCH_LATER_S).await;
    until("the end of the frozen round's batch", async || {
        let _ = sweep::handle(&later, json!({}), stop_at()).await.expect("a sweep always answers");
        (journey.world.count("merge_batch WHERE status = 3").await == 1).then_some(())
    })
    .await;
    let round = claim_round::handle(&later, json!({}), stop_at()).await.expect("a round always answers");
    assert_eq!(round.rounds[0].outcome, "claimed");
    let branch_of = async |nth: &str| -> String {
        let sql = format!("SELECT CONCAT('muster/default/', LOWER(HEX(claim_token))) FROM merge_batch ORDER BY id {nth} LIMIT 1");
        journey.world.scalar(&sql, ()).await
    };
    let (first, second) = (branch_of("").await, branch_of("DESC").await);

    journey.forge.clear_calls();
    parent::thaw(&frozen);
    let output = within("the end of the revived round", frozen.wait_with_output()).await.expect("a child can be awaited");
    assert_eq!(parent::how(output.status), Some(End::Answered), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs = |branch: &str| journey.forge.merge_requests().into_iter().find(|found| found.source_branch == branch);
    if let Some(own) = theirs(&first) {
        assert_eq!((own.state, own.auto_merge), (MrState::Closed, false), "its own merge request is closed: {own:?}");
        let merges = journey.forge.calls().into_iter().filter(|(method, path, status)| {
            method == "PUT" && path.ends_with(&format!("merge_requests/{}/merge", own.iid)) && (200..300).contains(status)
        });
        assert_eq!(merges.count(), 0, "it arms nothing");
    }
    let other = theirs(&second).expect("the second batch has its merge request");
    assert_eq!((other.state, other.auto_merge), (MrState::Opened, true), "nobody touched the other batch: {other:?}");
    assert_eq!(journey.forge.git(&["rev-list", "--count", "main"]).expect("a count"), "1", "nothing has landed");

    journey.forge.end_pipeline(other.pipeline.expect("a pipeline").id, PipelineStatus::Success);
    until("the merge of the second batch", async || {
        let _ = sweep::handle(&later, json!({}), stop_at()).await.expect("a sweep always answers");
        (journey.world.count("operation WHERE status = 3").await == 2).then_some(())
    })
    .await;
    let log = journey.forge.git(&["log", "--no-merges", "--format=%B", "main"]).expect("a log");
    assert_eq!(log.lines().filter(|line| line.starts_with("Request ")).count(), 2, "{log}");
    journey.world.assert_invariants().await;
}

#[tokio::test]
async fn a_runner_frozen_before_it_opens_closes_the_merge_request_it_then_makes() {
    comes_back_to_nothing("forge: open a merge request: before").await;
}

#[tokio::test]
async fn a_runner_frozen_before_it_records_changes_nothing_any_more() {
    comes_back_to_nothing("record_merge_request: before").await;
}

#[tokio::test]
async fn a_runner_frozen_before_it_arms_arms_nothing_any_more() {
    comes_back_to_nothing("forge: merge: before").await;
}
