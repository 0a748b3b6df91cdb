use std::time::Duration;

use adapters::forge::{ArmAnswer, Forge, ForgeError, Mergeability, MrState};
use local::gitlab::{Fault, FaultEffect, MergeMethod, PipelinePlan};

use crate::world::{BRANCH, World, is_waiting};

const MERGE: &str = "/merge";

#[tokio::test]
async fn refused_although_mergeable_means_ask_again() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.standin.set_knobs(|knobs| knobs.merge_405 = 8);
    let reason = match world.arm(iid, &head).await.unwrap() {
        ArmAnswer::NotYet { reason } => reason,
        other => panic!("{other:?}"),
    };
    assert!(!reason.is_empty());
    assert_eq!(world.arm_until(iid, &head, |answer| !is_waiting(answer)).await, ArmAnswer::Armed);
}

#[tokio::test]
async fn an_ok_that_neither_merged_nor_armed_is_not_believed() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.facts_until(iid, |facts| facts.head_sha.is_some()).await;
    world.standin.set_knobs(|knobs| knobs.merge_unarmed = 1);
    let answer = world.arm(iid, &head).await.unwrap();
    assert!(is_waiting(&answer), "{answer:?}");
    assert!(!world.facts(iid).await.armed);
}

#[tokio::test]
async fn arming_twice_leaves_it_armed_without_a_second_write() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.armed().await;
    let before = world.standin.count_calls("PUT", MERGE);
    assert_eq!(world.arm(iid, &head).await.unwrap(), ArmAnswer::Armed);
    assert_eq!(world.standin.count_calls("PUT", MERGE), before);
}

#[tokio::test]
async fn each_conflict_is_told_apart_by_its_text() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.facts_until(iid, |facts| facts.head_sha.is_some()).await;
    world.standin.inject(Fault::resource_lock("PUT", MERGE));
    assert!(matches!(world.arm(iid, &head).await, Err(ForgeError::Busy { .. })));

    let other = "2".repeat(40);
    let text = format!(r#"{{"message":"SHA does not match HEAD of source branch: {other}"}}"#);
    world.standin.inject(Fault::new("PUT", MERGE, FaultEffect::json(409, &text)));
    assert_eq!(world.arm(iid, &head).await.unwrap(), ArmAnswer::ForeignHead { head_sha: other });

    world.standin.inject(Fault::new("PUT", MERGE, FaultEffect::json(409, r#"{"message":["A conflict of tomorrow"]}"#)));
    assert!(is_waiting(&world.arm(iid, &head).await.unwrap()));
}

#[tokio::test]
async fn a_head_that_somebody_pushed_is_never_merged() {
    let world = World::new().await;
    let (head, iid) = world.proposed().await;
    let pushed = world.push(BRANCH, &[("evil", Some("x"))], "Just one more").await;
    let answer = world.arm_until(iid, &head, |answer| !is_waiting(answer)).await;
    assert_eq!(answer, ArmAnswer::ForeignHead { head_sha: pushed });
    assert!(!world.facts(iid).await.armed);
}

#[tokio::test]
async fn what_happened_meanwhile_is_told() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.standin.close_as(iid, "alice").await.unwrap();
    assert_eq!(world.arm(iid, &head).await.unwrap(), ArmAnswer::Closed);
    world.standin.reopen_as(iid, "alice").await.unwrap();
    assert!(world.standin.merge_as(iid, "alice").await.unwrap());
    assert_eq!(world.arm(iid, &head).await.unwrap(), ArmAnswer::Merged);
}

#[tokio::test]
async fn a_merge_whose_answer_was_lost_is_found_done() {
    let world = World::with(PipelinePlan::None).await;
    world.standin.set_knobs(|knobs| knobs.project.pipelines_must_succeed = false);
    let (head, iid) = world.proposed().await;
    world.facts_until(iid, |facts| facts.mergeability == Mergeability::Ready).await;
    world.standin.inject(Fault::lost_answer("PUT", MERGE));
    assert!(matches!(world.arm(iid, &head).await, Err(ForgeError::Unreachable { .. })));
    assert_eq!(world.arm(iid, &head).await.unwrap(), ArmAnswer::Merged);
    assert_eq!(world.standin.git(&["rev-list", "--count", "--merges", "main"]).unwrap(), "1");
}

#[tokio::test]
async fn a_conflict_with_the_target_never_passes_by_waiting() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.push("main", &[("roles/ann.json", Some("{\"role\":\"none\"}\n"))], "Meanwhile").await;
    let answer = world.arm_until(iid, &head, |answer| !is_waiting(answer)).await;
    assert!(matches!(&answer, ArmAnswer::Never { reason } if reason.contains("conflict")), "{answer:?}");
}

#[tokio::test]
async fn a_target_that_moved_on_needs_a_rebase_where_only_fast_forward_is_allowed() {
    let world = World::with(PipelinePlan::Hang).await;
    world.standin.set_knobs(|knobs| knobs.project.merge_method = MergeMethod::Ff);
    let (head, iid) = world.proposed().await;
    world.push("main", &[("other", Some("x"))], "Meanwhile").await;
    let answer = world.arm_until(iid, &head, |answer| !is_waiting(answer)).await;
    assert!(matches!(&answer, ArmAnswer::Never { reason } if reason.contains("fast-forward")), "{answer:?}");
}

#[tokio::test]
async fn a_person_who_holds_it_back_can_let_it_go_again() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.edit(iid, serde_json::json!({"title": "Draft: Grant 1 access"})).await;
    world.facts_until(iid, |facts| facts.mergeability == Mergeability::Held("draft_status".to_owned())).await;
    match world.arm(iid, &head).await.unwrap() {
        ArmAnswer::NotYet { reason } => assert!(reason.contains("draft_status"), "{reason}"),
        other => panic!("{other:?}"),
    }
    world.edit(iid, serde_json::json!({"title": "Grant 1 access"})).await;
    assert_eq!(world.arm_until(iid, &head, |answer| !is_waiting(answer)).await, ArmAnswer::Armed);
}

#[tokio::test]
async fn a_branch_that_is_gone_never_merges() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.facts_until(iid, |facts| facts.head_sha.is_some()).await;
    world.gitlab.delete_branch(&world.project, BRANCH).await.unwrap();
    let answer = world.arm_until(iid, &head, |answer| !is_waiting(answer)).await;
    assert!(matches!(answer, ArmAnswer::Never { .. } | ArmAnswer::Closed), "{answer:?}");
}

#[tokio::test]
async fn without_the_right_to_merge_our_token_is_named() {
    let world = World::with(PipelinePlan::Hang).await;
    let (head, iid) = world.proposed().await;
    world.facts_until(iid, |facts| facts.head_sha.is_some()).await;
    world.standin.set_knobs(|knobs| knobs.project.may_merge = false);
    assert!(matches!(world.arm(iid, &head).await, Err(ForgeError::Unauthorized { .. })));
}

#[tokio::test]
async fn a_merge_in_flight_is_waited_for() {
    let world = World::with(PipelinePlan::pass(Duration::from_millis(20))).await;
    world.standin.set_knobs(|knobs| knobs.merges_stuck_locked = 1);
    let (head, iid) = world.proposed().await;
    // Armed or merged at once, as the pipeline's end falls: both get stuck.
    let mut stuck = world.facts(iid).await;
    for _ in 0..2_000 {
        if stuck.state == MrState::Locked {
            break;
        }
        world.arm(iid, &head).await.unwrap();
        stuck = world.facts(iid).await;
    }
    assert_eq!(stuck.state, MrState::Locked);
    assert_eq!(stuck.closed_by, None);
    assert!(is_waiting(&world.arm(iid, &head).await.unwrap()));
    let before = world.standin.count_calls("PUT", "/merge_requests/");
    assert_eq!(world.gitlab.withdraw(&world.project, iid).await.unwrap().state, MrState::Locked);
    assert_eq!(world.standin.count_calls("PUT", "/merge_requests/"), before, "a locked one must not be closed");
}

#[tokio::test]
async fn a_merge_request_that_is_not_there_is_not_found() {
    let world = World::new().await;
    let head = world.committed(&world.plan().await).await;
    assert!(matches!(world.arm(99, &head).await, Err(ForgeError::NotFound { what }) if what.contains("!99")));
}
