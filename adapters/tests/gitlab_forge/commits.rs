use adapters::forge::{CommitAnswer, ForgeError};
use local::gitlab::{Fault, FaultEffect};

use crate::world::{BATCH, BRANCH, World, create, delete, plan_of, update};

const COMMITS: &str = "/repository/commits";

#[tokio::test]
async fn a_commit_asked_for_twice_is_made_once() {
    let world = World::new().await;
    let plan = world.plan().await;
    let first = world.commit(&plan).await.unwrap();
    let again = world.commit(&plan).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(world.standin.git(&["rev-list", "--count", &format!("main..{BRANCH}")]).unwrap(), "1");
}

#[tokio::test]
async fn the_one_commit_creates_updates_and_deletes_byte_for_byte() {
    let world = World::new().await;
    world.push("main", &[("a/old", Some("old\n")), ("a/gone", Some("gone\n"))], "Before").await;
    let odd = "nul \0, bell \u{7}, grüße, no line end";
    let plan = plan_of(&world.head().await, vec![create("b/new file", odd), update("a/old", "new\n"), delete("a/gone")]);
    let head = world.committed(&plan).await;
    assert_eq!(world.standin.git(&["rev-parse", &format!("{head}:b/new file")]).unwrap(), world.blob_id(odd));
    assert_eq!(world.standin.git(&["show", &format!("{head}:a/old")]).unwrap(), "new");
    assert!(world.standin.git(&["cat-file", "-e", &format!("{head}:a/gone")]).is_err());
    assert_eq!(
        world.standin.git(&["log", "-1", "--format=%P %B", &head]).unwrap().trim_end(),
        format!("{} {}", plan.start_sha, plan.message.trim_end())
    );
    assert_eq!(world.commit(&plan).await.unwrap(), CommitAnswer::Committed { head_sha: head });
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_adopted() {
    for fault in [Fault::lost_answer("POST", COMMITS), Fault::broken("POST", COMMITS, true)] {
        let world = World::new().await;
        let plan = world.plan().await;
        world.standin.inject(fault);
        assert!(matches!(world.commit(&plan).await, Err(ForgeError::Unreachable { .. })));
        let made = world.standin.git(&["rev-parse", BRANCH]).unwrap();
        assert_eq!(world.committed(&plan).await, made);
    }
}

#[tokio::test]
async fn a_branch_with_anything_but_our_commit_is_foreign() {
    let trailer = format!("Grant\n\nMuster-Batch: {BATCH}");
    let ours: (&str, Option<&str>) = ("roles/ann.json", Some("{\"role\":\"admin\"}\n"));
    for (files, message, what) in [
        (ours, "Grant", "no trailer"),
        (ours, "Grant\n\nMuster-Batch: 0123456789abcdef0123456789abcdef00", "another token"),
        (("roles/ann.json", Some("{\"role\":\"root\"}\n")), trailer.as_str(), "other content"),
        (("roles/bob.json", Some("{}\n")), trailer.as_str(), "other file"),
    ] {
        let world = World::new().await;
        let plan = world.plan().await;
        let head_sha = world.push(BRANCH, &[files], message).await;
        assert_eq!(world.commit(&plan).await.unwrap(), CommitAnswer::Foreign { head_sha }, "{what}");
    }
}

#[tokio::test]
async fn our_commit_on_another_start_or_under_another_commit_is_foreign() {
    let world = World::new().await;
    let plan = world.plan().await;
    world.committed(&plan).await;
    let elsewhere = plan_of(&world.push("main", &[("x", Some("x"))], "Meanwhile").await, plan.actions.clone());
    assert!(matches!(world.commit(&elsewhere).await.unwrap(), CommitAnswer::Foreign { .. }));

    let head_sha = world.push(BRANCH, &[("x", Some("x"))], &plan.message).await;
    assert_eq!(world.commit(&plan).await.unwrap(), CommitAnswer::Foreign { head_sha });
}

#[tokio::test]
async fn a_refused_content_keeps_the_forges_words_and_leaves_no_branch() {
    let world = World::new().await;
    let plan = world.plan().await;
    world.standin.set_knobs(|knobs| knobs.project.prohibited_path = Some("ann".to_owned()));
    match world.commit(&plan).await.unwrap() {
        CommitAnswer::Refused { reason } => assert!(reason.contains("ann"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(world.standin.git(&["rev-parse", "--verify", BRANCH]).is_err());
}

#[tokio::test]
async fn two_runners_of_one_claim_make_one_commit() {
    let world = World::new().await;
    let plan = world.plan().await;
    let (one, two) = tokio::join!(world.commit(&plan), world.commit(&plan));
    let head_sha = world.standin.git(&["rev-parse", BRANCH]).unwrap();
    assert_eq!(one.unwrap(), CommitAnswer::Committed { head_sha: head_sha.clone() });
    assert_eq!(two.unwrap(), CommitAnswer::Committed { head_sha });
    assert_eq!(world.standin.git(&["rev-list", "--count", &format!("main..{BRANCH}")]).unwrap(), "1");
}

#[tokio::test]
async fn a_body_that_the_forge_or_its_proxy_finds_too_large_is_refused() {
    let world = World::new().await;
    let plan = world.plan().await;
    for body in [r#"{"error":"Request Entity Too Large"}"#, "<html><h1>413</h1></html>"] {
        world.standin.inject(Fault::new("POST", COMMITS, FaultEffect::json(413, body)));
        assert!(matches!(world.commit(&plan).await.unwrap(), CommitAnswer::Refused { .. }));
    }
}

#[tokio::test]
async fn trouble_inside_the_forge_never_blames_the_content() {
    let world = World::new().await;
    let plan = world.plan().await;
    for text in ["14:failed to connect to all addresses", "The repository is temporarily read-only. Please try again later."] {
        world.standin.inject(Fault::new("POST", COMMITS, FaultEffect::json(400, &format!(r#"{{"message":"{text}"}}"#))));
        assert!(matches!(world.commit(&plan).await, Err(ForgeError::Busy { .. })), "{text}");
    }
    world.standin.set_knobs(|knobs| knobs.project.refused_branch = Some("muster/".to_owned()));
    assert!(matches!(world.commit(&plan).await, Err(ForgeError::Unauthorized { .. })));
}

#[tokio::test]
async fn an_action_that_contradicts_the_tree_is_a_mistake_of_ours() {
    let world = World::new().await;
    world.push("main", &[("a", Some("a"))], "Before").await;
    let start = world.head().await;
    for actions in [vec![create("a", "b")], vec![update("none", "b")], vec![delete("none")]] {
        let answer = world.commit(&plan_of(&start, actions.clone())).await;
        assert!(matches!(answer, Err(ForgeError::Unexpected { status: 400, .. })), "{actions:?}: {answer:?}");
    }
}
