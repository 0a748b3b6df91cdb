//! A GitLab that is newer than we are, and one that keeps its lists for hours.

use adapters::forge::{ArmAnswer, Forge, MrState, PipelineState};
use local::gitlab::PipelinePlan;

use crate::world::{BRANCH, World, is_waiting};

#[tokio::test]
async fn a_value_that_nobody_knows_yet_means_wait() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.facts_until(iid, |facts| facts.pipeline == PipelineState::Underway).await;
    world.standin.set_knobs(|knobs| knobs.unknown_values = 1);
    let facts = world.facts(iid).await;
    assert_eq!((facts.state, facts.pipeline), (MrState::Unknown, PipelineState::Underway));
    world.standin.set_knobs(|knobs| knobs.unknown_values = 1);
    assert!(is_waiting(&world.arm(iid, &head).await.unwrap()), "nothing is armed by guessing");
    assert_eq!(world.standin.count_calls("PUT", "/merge"), 0);
    assert_eq!(world.arm_until(iid, &head, |answer| !is_waiting(answer)).await, ArmAnswer::Armed);
}

#[tokio::test]
async fn a_head_that_is_withheld_is_waited_for() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.facts_until(iid, |facts| facts.head_sha.is_some()).await;
    world.standin.set_knobs(|knobs| knobs.sha_withheld = 1);
    assert!(is_waiting(&world.arm(iid, &head).await.unwrap()));
    assert_eq!(world.standin.count_calls("PUT", "/merge"), 0, "never without knowing the head");
}

#[tokio::test]
async fn a_list_finds_and_never_decides() {
    let world = World::with(PipelinePlan::Hang).await;
    let (_, iid) = world.proposed().await;
    world.standin.set_knobs(|knobs| knobs.lists_stale_ms = 3_600_000);
    let found = async || world.gitlab.observe(&world.project, BRANCH, None).await.unwrap().unwrap();
    assert_eq!(found().await.state, MrState::Opened);
    world.standin.close_as(iid, "dave").await.unwrap();
    assert_eq!(found().await.state, MrState::Closed, "the list still says opened");
}
