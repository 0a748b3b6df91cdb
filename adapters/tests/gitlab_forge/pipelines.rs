use adapters::forge::{Forge, ForgeError};
use local::gitlab::{Fault, FaultEffect, PipelinePlan, PipelineStatus};

use crate::world::World;

async fn red(world: &World, commit: &str) -> bool {
    world.gitlab.target_red(&world.project, commit).await.unwrap()
}

#[tokio::test]
async fn the_targets_last_finished_pipeline_at_or_before_the_commit_decides() {
    let world = World::new().await;
    let first = world.head().await;
    assert!(!red(&world, &first).await, "no pipeline, nothing failed");
    world.standin.add_branch_pipeline("main", PipelineStatus::Failed).await.unwrap();
    assert!(red(&world, &first).await);

    let second = world.push("main", &[("fix", Some("x"))], "Fix").await;
    let running = world.standin.add_branch_pipeline("main", PipelineStatus::Running).await.unwrap();
    assert!(red(&world, &second).await, "one that still runs has not made it green");
    world.standin.end_pipeline(running, PipelineStatus::Success);
    assert!(!red(&world, &second).await);
    assert!(red(&world, &first).await, "what came later does not count");
}

#[tokio::test]
async fn pipelines_of_merge_requests_and_other_branches_do_not_make_the_target_red() {
    let world = World::with(PipelinePlan::Hang).await;
    let (_, iid) = world.armed().await;
    let url = world.facts_until(iid, |facts| facts.pipeline_url.is_some()).await.pipeline_url.unwrap();
    world.standin.end_pipeline(url.rsplit('/').next().unwrap().parse().unwrap(), PipelineStatus::Failed);
    world.push("feature", &[("x", Some("x"))], "Broken").await;
    world.standin.add_branch_pipeline("feature", PipelineStatus::Failed).await.unwrap();
    assert!(!red(&world, &world.head().await).await);
}

#[tokio::test]
async fn disabled_pipelines_are_not_taken_for_green_ones() {
    let world = World::new().await;
    world.standin.inject(Fault::new("GET", "/pipelines?", FaultEffect::json(403, r#"{"message":"403 Forbidden"}"#)));
    let answer = world.gitlab.target_red(&world.project, &world.head().await).await;
    assert!(matches!(answer, Err(ForgeError::Unauthorized { .. })), "{answer:?}");
}
