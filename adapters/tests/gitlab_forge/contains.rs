use adapters::forge::{Carried, Containment, Forge, ForgeError};
use local::gitlab::PipelinePlan;

use crate::world::{BATCH, World, create, delete, plan_of, update};

async fn asked(world: &World, carried: &Carried) -> Containment {
    world.gitlab.target_contains(&world.project, carried).await.unwrap()
}

#[tokio::test]
async fn a_commit_that_is_only_on_its_branch_is_not_on_the_target() {
    let world = World::with(PipelinePlan::Hang).await;
    let plan = world.plan().await;
    let head = world.committed(&plan).await;
    let unknown = "f".repeat(40);
    assert_eq!(asked(&world, &world.carried(&plan, &[&head, &unknown, "", &head])).await, Containment::No);
    assert_eq!(asked(&world, &world.carried(&plan, &[])).await, Containment::No);
}

#[tokio::test]
async fn content_that_a_person_changed_later_does_not_undo_the_merge() {
    let world = World::with(PipelinePlan::Hang).await;
    world.push("main", &[("a/old", Some("old\n")), ("a/gone", Some("gone\n"))], "Before").await;
    let plan = plan_of(&world.head().await, vec![create("new", "n"), update("a/old", "o"), delete("a/gone")]);
    let head = world.committed(&plan).await;
    let iid = world.open(&head).await;
    assert!(world.standin.merge_as(iid, "alice").await.unwrap());
    world.push("main", &[("new", Some("changed")), ("a/old", None), ("a/gone", Some("back"))], "Later").await;
    assert_eq!(asked(&world, &world.carried(&plan, &[&head])).await, Containment::Yes { commit: head });
}

#[tokio::test]
async fn our_work_under_a_commit_we_never_heard_of_is_found_by_its_trailer() {
    let world = World::new().await;
    let plan = world.plan().await;
    world.committed(&plan).await;
    let picked = world.push("main", &[("roles/ann.json", Some("{\"role\":\"admin\"}\n"))], &plan.message).await;
    // It is on the second page of the target's commits.
    for number in 0..105 {
        world.push("main", &[("noise", Some(&number.to_string()))], "Noise").await;
    }
    assert_eq!(asked(&world, &world.carried(&plan, &[])).await, Containment::Yes { commit: picked });
}

#[tokio::test]
async fn our_trailer_over_other_content_is_told_with_its_paths() {
    let world = World::new().await;
    world.push("main", &[("keep", Some("k"))], "Before").await;
    let plan = plan_of(&world.head().await, vec![create("a", "a"), create("b", "b"), delete("keep")]);
    let commit = world.push("main", &[("a", Some("a")), ("b", Some("other"))], &plan.message).await;
    let paths = vec!["b".to_owned(), "keep".to_owned()];
    let other = Containment::OtherContent { commit: commit.clone(), paths };
    assert_eq!(asked(&world, &world.carried(&plan, &[])).await, other);
    assert_eq!(asked(&world, &world.carried(&plan, &[&commit])).await, other);
}

#[tokio::test]
async fn a_reachable_commit_without_our_trailer_is_not_our_work() {
    let world = World::new().await;
    let plan = world.plan().await;
    let message = format!("Grant\n\nMuster-Batch: {BATCH}0");
    let commit = world.push("main", &[("roles/ann.json", Some("{\"role\":\"admin\"}\n"))], &message).await;
    assert_eq!(asked(&world, &world.carried(&plan, &[&commit])).await, Containment::No);
}

#[tokio::test]
async fn without_its_target_branch_nothing_is_said() {
    let mut world = World::new().await;
    let plan = world.plan().await;
    let head = world.committed(&plan).await;
    world.project.target_branch = "gone".to_owned();
    let answer = world.gitlab.target_contains(&world.project, &world.carried(&plan, &[&head])).await;
    assert!(matches!(answer, Err(ForgeError::NotFound { .. })), "{answer:?}");
}
