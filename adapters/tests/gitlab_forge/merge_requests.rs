use adapters::forge::{ArmAnswer, Forge, ForgeError, MrState, OpenMergeRequest};
use local::gitlab::{Fault, FaultEffect};

use crate::world::{BATCH, BRANCH, World, adapter, create, plan_of};

const LIST: &str = "/merge_requests?";

#[tokio::test]
async fn a_merge_request_asked_for_twice_is_opened_once() {
    let world = World::new().await;
    let (head, iid) = world.proposed().await;
    assert_eq!(world.open(&head).await, iid);
    assert_eq!(world.standin.merge_requests().len(), 1);
}

#[tokio::test]
async fn two_runners_of_one_claim_open_one_merge_request() {
    let world = World::new().await;
    let head = world.committed(&world.plan().await).await;
    let (one, two) = tokio::join!(world.open(&head), world.open(&head));
    assert_eq!(one, two);
    assert_eq!(world.standin.merge_requests().len(), 1);
}

#[tokio::test]
async fn the_forge_is_asked_to_keep_the_branch_and_not_to_squash() {
    let world = World::new().await;
    let (_, iid) = world.proposed().await;
    let url = format!("{}/api/v4/projects/42/merge_requests/{iid}", world.standin.url());
    let call = reqwest::Client::new().get(url).header("private-token", crate::world::TOKEN);
    let shown: serde_json::Value = call.send().await.unwrap().json().await.unwrap();
    assert_eq!((&shown["force_remove_source_branch"], &shown["squash"]), (&false.into(), &false.into()));
    assert_eq!((&shown["title"], &shown["description"]), (&"Grant 1 access".into(), &"One request.".into()));
}

#[tokio::test]
async fn a_merge_request_whose_answer_was_lost_is_adopted() {
    let world = World::new().await;
    let head = world.committed(&world.plan().await).await;
    world.standin.inject(Fault::lost_answer("POST", "/merge_requests"));
    let plan = world.merge_request_plan(&head);
    let lost = world.gitlab.ensure_merge_request(&world.project, &plan).await;
    assert!(matches!(lost, Err(ForgeError::Unreachable { .. })), "{lost:?}");
    let found = world.gitlab.ensure_merge_request(&world.project, &plan).await.unwrap();
    assert_eq!(world.standin.merge_requests().len(), 1);
    assert_eq!(found.iid, world.standin.merge_requests()[0].iid);
}

#[tokio::test]
async fn a_merge_request_that_a_stale_list_hides_is_adopted_from_the_conflict() {
    let world = World::new().await;
    let (head, iid) = world.proposed().await;
    world.standin.inject(Fault::new("GET", LIST, FaultEffect::json(200, "[]")));
    assert_eq!(world.open(&head).await, iid);
    assert_eq!(world.standin.count_calls("POST", "/merge_requests"), 2);
}

#[tokio::test]
async fn a_branch_that_is_not_visible_yet_is_asked_for_again() {
    let world = World::new().await;
    world.standin.set_knobs(|knobs| knobs.branch_lag_ms = 60_000);
    let head = world.committed(&world.plan().await).await;
    let plan = world.merge_request_plan(&head);
    let early = world.gitlab.ensure_merge_request(&world.project, &plan).await;
    assert!(matches!(early, Err(ForgeError::Busy { .. })), "{early:?}");
    world.standin.set_knobs(|knobs| knobs.branch_lag_ms = 0);
    world.open(&head).await;
}

#[tokio::test]
async fn a_closed_merge_request_is_adopted_and_never_doubled() {
    let world = World::new().await;
    let (head, iid) = world.proposed().await;
    world.standin.close_as(iid, "alice").await.unwrap();
    assert_eq!(world.open(&head).await, iid);
    assert_eq!(world.standin.merge_requests().len(), 1);
}

#[tokio::test]
async fn one_that_a_person_pointed_elsewhere_is_adopted_and_never_merged() {
    let world = World::new().await;
    let (head, iid) = world.proposed().await;
    world.push("release", &[("r", Some("r"))], "Release").await;
    world.edit(iid, serde_json::json!({"target_branch": "release"})).await;
    assert_eq!(world.open(&head).await, iid);
    assert_eq!(world.standin.merge_requests().len(), 1);
    let answer = world.arm(iid, &head).await.unwrap();
    assert!(matches!(&answer, ArmAnswer::Never { reason } if reason.contains("release")), "{answer:?}");
    assert_eq!(world.standin.count_calls("PUT", &format!("/{iid}/merge")), 0);
}

#[tokio::test]
async fn a_fork_with_a_branch_of_our_name_is_not_ours() {
    let world = World::new().await;
    let head = world.committed(&world.plan().await).await;
    let of_fork = format!(
        r#"[{{"iid":900,"web_url":"x","state":"opened","source_branch":"{BRANCH}","target_branch":"main","source_project_id":7,"target_project_id":42}}]"#
    );
    world.standin.inject(Fault::new("GET", LIST, FaultEffect::json(200, &of_fork)));
    assert_ne!(world.open(&head).await, 900);
    assert_eq!(world.standin.merge_requests().len(), 1);
}

#[tokio::test]
async fn what_is_not_there_is_none_and_an_unknown_project_is_an_error() {
    let world = World::new().await;
    assert_eq!(world.gitlab.observe(&world.project, BRANCH, None).await.unwrap(), None);
    assert_eq!(world.gitlab.observe(&world.project, BRANCH, Some(99)).await.unwrap(), None);
    let mut elsewhere = world.project.clone();
    elsewhere.path = "acme/nothing".to_owned();
    for iid in [None, Some(99)] {
        let answer = world.gitlab.observe(&elsewhere, BRANCH, iid).await;
        assert!(matches!(answer, Err(ForgeError::NotFound { .. })), "{answer:?}");
    }
    assert!(matches!(world.gitlab.target_head(&elsewhere).await, Err(ForgeError::NotFound { .. })));
    assert!(matches!(world.gitlab.delete_branch(&elsewhere, BRANCH).await, Err(ForgeError::NotFound { .. })));
}

#[tokio::test]
async fn it_is_observed_by_branch_and_by_number_alike() {
    let mut world = World::new().await;
    let (head, iid) = world.proposed().await;
    world.facts_until(iid, |facts| facts.head_sha.is_some()).await;
    let by_branch = world.gitlab.observe(&world.project, BRANCH, None).await.unwrap().unwrap();
    world.project.id = Some(42);
    let by_number = world.gitlab.observe(&world.project, BRANCH, Some(iid)).await.unwrap().unwrap();
    assert_eq!((by_branch.iid, by_branch.head_sha.as_deref()), (iid, Some(head.as_str())));
    assert_eq!((by_number.iid, by_number.state), (iid, MrState::Opened));
}

#[tokio::test]
async fn a_person_who_closed_it_is_named_and_we_are_told_apart() {
    let world = World::new().await;
    let (_, iid) = world.proposed().await;
    world.standin.close_as(iid, "alice").await.unwrap();
    let facts = world.facts(iid).await;
    assert_eq!((facts.closed_by.as_deref(), facts.closed_by_us), (Some("alice"), false));
    world.standin.reopen_as(iid, "alice").await.unwrap();
    assert!(world.gitlab.withdraw(&world.project, iid).await.unwrap().closed_by_us);
}

#[tokio::test]
async fn open_ones_are_listed_by_prefix_over_all_pages_of_our_host() {
    let world = World::new().await;
    let start = world.head().await;
    let mut ours = Vec::new();
    for (number, branch) in ["muster/default/00", "muster/default/01", "feature/x"].into_iter().enumerate() {
        let mut plan = plan_of(&start, vec![create(&format!("f{number}"), "x")]);
        plan.branch = branch.to_owned();
        plan.message = format!("Grant\n\nMuster-Batch: {BATCH}");
        let head = world.committed(&plan).await;
        let mut request = world.merge_request_plan(&head);
        request.branch = branch.to_owned();
        let opened = world.gitlab.ensure_merge_request(&world.project, &request).await.unwrap();
        if branch.starts_with("muster/") {
            ours.push(OpenMergeRequest { iid: opened.iid, branch: branch.to_owned(), url: opened.url });
        }
    }
    world.standin.close_as(ours[0].iid, "alice").await.unwrap();
    // The first page is empty and names a next one on a host that does not exist; the rest comes from the real list.
    let link = "<http://inner.invalid/api/v4/projects/42/merge_requests?page=1&per_page=100&state=opened>; rel=\"next\"";
    world.standin.inject(Fault::new(
        "GET",
        LIST,
        FaultEffect::Answer {
            status: 200,
            body: "[]".to_owned(),
            content_type: "application/json".to_owned(),
            headers: vec![("Link".to_owned(), link.to_owned())],
            after_effect: false,
        },
    ));
    let found = world.gitlab.open_with_prefix(&world.project, "muster/default/").await.unwrap();
    assert_eq!(found, ours[1..]);
    let other = adapter(&format!("{}/", world.standin.url()), crate::world::TOKEN);
    assert_eq!(other.open_with_prefix(&world.project, "muster/other/").await.unwrap(), []);
}
