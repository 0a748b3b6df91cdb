use adapters::forge::{Containment, Forge, ForgeError, MrState, PipelineState};
use local::gitlab::{Fault, PipelinePlan, PipelineStatus};

use crate::world::{World, is_waiting};

#[tokio::test]
async fn a_withdrawn_one_is_closed_disarmed_and_its_pipeline_cancelled() {
    let world = World::with(PipelinePlan::Hang).await;
    let (_, iid) = world.armed().await;
    world.facts_until(iid, |facts| facts.pipeline == PipelineState::Underway).await;
    world.standin.clear_calls();
    let facts = world.gitlab.withdraw(&world.project, iid).await.unwrap();
    assert_eq!((facts.state, facts.armed, facts.closed_by_us), (MrState::Closed, false, true));
    let writes: Vec<String> = world.standin.calls().into_iter().filter(|call| call.0 != "GET").map(|call| call.1).collect();
    let order = ["cancel_merge_when_pipeline_succeeds", "merge_requests/", "/cancel"];
    assert!(writes.len() == 3 && writes.iter().zip(order).all(|(path, part)| path.contains(part)), "{writes:?}");
    assert_eq!(facts.pipeline, PipelineState::Canceled);
    let again = world.gitlab.withdraw(&world.project, iid).await.unwrap();
    assert_eq!(again, facts);
}

#[tokio::test]
async fn a_merged_one_is_left_alone() {
    let world = World::with(PipelinePlan::Hang).await;
    let (_, iid) = world.proposed().await;
    assert!(world.standin.merge_as(iid, "alice").await.unwrap());
    world.standin.clear_calls();
    for facts in [world.gitlab.withdraw(&world.project, iid).await.unwrap(), world.gitlab.disarm(&world.project, iid).await.unwrap()] {
        assert_eq!(facts.state, MrState::Merged);
    }
    assert!(world.standin.calls().iter().all(|(method, _, _)| method == "GET"), "{:?}", world.standin.calls());
}

#[tokio::test]
async fn a_disarmed_one_stays_open_and_does_not_merge_when_its_pipeline_passes() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.armed().await;
    let facts = world.gitlab.disarm(&world.project, iid).await.unwrap();
    assert_eq!((facts.state, facts.armed), (MrState::Opened, false));
    // Not being armed is no trouble.
    assert!(!world.gitlab.disarm(&world.project, iid).await.unwrap().armed);

    let pipeline = world.facts_until(iid, |facts| facts.pipeline_url.is_some()).await.pipeline_url.unwrap();
    let number = pipeline.rsplit('/').next().unwrap().parse().unwrap();
    world.standin.end_pipeline(number, PipelineStatus::Success);
    let passed = world.facts_until(iid, |facts| facts.pipeline == PipelineState::Passed).await;
    assert_eq!(passed.state, MrState::Opened);
    world.arm_until(iid, &head, |answer| !is_waiting(answer)).await;
    world.facts_until(iid, |facts| facts.state == MrState::Merged).await;
}

#[tokio::test]
async fn a_close_whose_answer_was_lost_is_found_done() {
    let world = World::with(PipelinePlan::Hang).await;
    let (_, iid) = world.proposed().await;
    world.standin.inject(Fault::lost_answer("PUT", "/merge_requests/"));
    assert!(matches!(world.gitlab.withdraw(&world.project, iid).await, Err(ForgeError::Unreachable { .. })));
    let facts = world.gitlab.withdraw(&world.project, iid).await.unwrap();
    assert_eq!((facts.state, facts.closed_by_us), (MrState::Closed, true));
}

#[tokio::test]
async fn closed_and_yet_merged_is_found_out_by_asking_git() {
    let world = World::with(PipelinePlan::Hang).await;
    let plan = world.plan().await;
    let head = world.committed(&plan).await;
    let iid = world.open(&head).await;
    world.arm_until(iid, &head, |answer| !is_waiting(answer)).await;
    world.standin.set_knobs(|knobs| knobs.closed_yet_merged = 1);
    assert_eq!(world.gitlab.withdraw(&world.project, iid).await.unwrap().state, MrState::Closed);
    let carried = world.carried(&plan, &[&head]);
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while world.gitlab.target_contains(&world.project, &carried).await.unwrap() == Containment::No {
        assert!(std::time::Instant::now() < patience, "the merge never landed");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let contained = world.gitlab.target_contains(&world.project, &carried).await.unwrap();
    assert_eq!(contained, Containment::Yes { commit: head });
    assert_eq!(world.facts(iid).await.state, MrState::Closed);
}

#[tokio::test]
async fn a_pipeline_that_cannot_be_cancelled_does_not_spoil_the_withdrawal() {
    let world = World::with(PipelinePlan::Hang).await;
    let (_, iid) = world.armed().await;
    world.facts_until(iid, |facts| facts.pipeline == PipelineState::Underway).await;
    world.standin.inject(Fault::broken("POST", "/pipelines/", false));
    let facts = world.gitlab.withdraw(&world.project, iid).await.unwrap();
    assert_eq!((facts.state, facts.pipeline), (MrState::Closed, PipelineState::Underway));
}
