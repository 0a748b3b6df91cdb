use adapters::forge::{ArmAnswer, Containment, Forge, MrState, PathQuery, PipelineState};

use crate::world::{BATCH, BRANCH, World, create, is_waiting, plan_of};

#[tokio::test]
async fn a_batch_goes_from_commit_to_target_and_git_has_its_trailer_and_files() {
    let world = World::new().await;
    let plan = world.plan().await;
    let head = world.committed(&plan).await;
    let iid = world.open(&head).await;
    world.arm_until(iid, &head, |answer| !is_waiting(answer)).await;
    let merged = world.facts_until(iid, |facts| facts.state == MrState::Merged).await;
    assert_eq!(merged.pipeline, PipelineState::Passed);
    assert_eq!(merged.head_sha.as_deref(), Some(head.as_str()));
    assert_eq!(merged.source_branch, BRANCH);
    assert!(merged.url.starts_with(&world.standin.url()), "{}", merged.url);

    let carried = world.carried(&plan, &[&head, merged.merge_commit_sha.as_deref().unwrap()]);
    let contained = world.gitlab.target_contains(&world.project, &carried).await.unwrap();
    assert_eq!(contained, Containment::Yes { commit: head });

    let messages = world.standin.git(&["log", "--format=%B", "main"]).unwrap();
    assert_eq!(messages.matches(&format!("Muster-Batch: {BATCH}")).count(), 2, "{messages}");
    assert_eq!(world.standin.git(&["show", "main:roles/ann.json"]).unwrap(), "{\"role\":\"admin\"}");

    // The branch is the fence against a revived runner: the forge must not have removed it.
    assert_eq!(world.standin.git(&["rev-parse", BRANCH]).unwrap(), carried.commits[0]);
    world.gitlab.delete_branch(&world.project, BRANCH).await.unwrap();
    world.gitlab.delete_branch(&world.project, BRANCH).await.unwrap();
    assert!(world.standin.git(&["rev-parse", "--verify", BRANCH]).is_err());
}

#[tokio::test]
async fn without_ci_the_merge_happens_at_once() {
    let world = World::with(local::gitlab::PipelinePlan::None).await;
    world.standin.set_knobs(|knobs| knobs.project.pipelines_must_succeed = false);
    let (head, iid) = world.proposed().await;
    assert_eq!(world.arm_until(iid, &head, |answer| !is_waiting(answer)).await, ArmAnswer::Merged);
}

#[tokio::test]
async fn a_round_of_a_hundred_members_costs_at_most_nine_calls() {
    let world = World::new().await;
    let start = world.head().await;
    let paths: Vec<String> = (0..100).map(|number| format!("roles/{number}.json")).collect();
    let queries: Vec<PathQuery> = paths.iter().map(|path| PathQuery { path: path.clone(), hash: false }).collect();
    assert!(world.gitlab.existing_paths(&world.project, &start, &queries).await.unwrap().is_empty());
    let plan = plan_of(&start, paths.iter().map(|path| create(path, path)).collect());
    let head = world.committed(&plan).await;
    let iid = world.open(&head).await;
    world.arm(iid, &head).await.unwrap();
    assert!(world.gitlab.calls() <= 9, "{} calls", world.gitlab.calls());
    assert_eq!(world.gitlab.calls(), world.standin.calls().len() as u64);
}
