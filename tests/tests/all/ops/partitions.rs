//! set_partition, pause, resume.

use std::time::Duration;

use adapters::forge::gitlab::{GitLab, GitLabOptions};
use adapters::relay::Relay;
use muster_tests::World;
use muster_tests::journey::{Journey, Published};
use muster_tests::proxy::Cut;
use muster_tests::{claim, principal};
use serde_json::{Value, json};
use shared::transactions::claim::ClaimOutcome;
use shared::transactions::command::{Command, CommandOutcome};
use shared::transactions::set_partition::SetPartition;
use shared::transactions::set_partition::settings::PartitionWish;

use super::{already, ask, order, order_by, refused, rehearsed_then_done};

fn access() -> Value {
    json!({
        "partition": "default", "project": "acme/access", "target_branch": "main",
        "path_template": "access/{target_key}/{subject_id}.json", "allowed_prefixes": ["access/"],
    })
}

fn with(mut fields: Value, more: Value) -> Value {
    fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    fields
}

#[tokio::test]
async fn a_partition_comes_to_be_with_defaults_and_the_forges_number() {
    let journey = Journey::with_world(World::empty().await).await;
    let done = rehearsed_then_done(&journey, "set_partition", access()).await;
    assert_eq!(done["before"], Value::Null);
    let after = &done["after"];
    assert_eq!(after["project_id"], "7", "{after}");
    assert_eq!((&after["max_requests"], &after["content_attempts"], &after["max_bytes"]), (&json!(100), &json!(8), &json!(8_388_608)));
    assert_eq!((&after["paused"], &after["closed_at"], &after["version"]), (&Value::Null, &Value::Null, &json!(1)));
    assert_eq!(done["warnings"], json!([]));
    already(&journey, "set_partition", access()).await;
    already(&journey, "set_partition", json!({ "partition": "default" })).await;
    let listed = ask(&journey, json!({ "action": "list_partitions" })).await;
    assert_eq!(listed["partitions"], json!([after]));
}

#[tokio::test]
async fn what_is_left_out_stays_and_attempts_grow_with_the_batch() {
    let journey = Journey::new().await;
    let fields = json!({ "partition": "default", "max_requests": 1000, "min_requests": 5 });
    let done = rehearsed_then_done(&journey, "set_partition", fields).await;
    let (before, after) = (&done["before"], &done["after"]);
    assert_eq!((&after["max_requests"], &after["min_requests"], &after["content_attempts"]), (&json!(1000), &json!(5), &json!(11)));
    for kept in ["project", "target_branch", "path_template", "allowed_prefixes", "max_wait_s", "created_at"] {
        assert_eq!(before[kept], after[kept], "{kept}");
    }
    let reason = "content_attempts 10 is too few";
    refused(&journey, "set_partition", json!({ "partition": "default", "content_attempts": 10 }), reason).await;
}

#[tokio::test]
async fn all_that_is_wrong_with_a_partition_is_told_at_once() {
    let journey = Journey::new().await;
    let fields = json!({
        "partition": "new", "project": "access", "target_branch": "a b", "path_template": "x/{subject_id}",
        "allowed_prefixes": ["access", ".git/"], "max_requests": 0, "max_bytes": "big", "total_s": 0, "project_id": 7,
    });
    let answer = refused(&journey, "set_partition", fields, "put right").await;
    let problems = answer["problems"].to_string();
    for part in [
        "max_bytes",
        "project \\\"access",
        "target_branch",
        "lacks {target_key}",
        "end with /",
        ".git",
        "max_requests 0",
        "total_s 0",
        "no field \\\"project_id",
    ] {
        assert!(problems.contains(part), "{part} is missing in {problems}");
    }
    let answer = refused(&journey, "set_partition", json!({ "partition": "new" }), "missing").await;
    assert_eq!(answer["problems"].as_array().map(Vec::len), Some(4), "{answer}");
}

#[tokio::test]
async fn a_project_that_would_merge_something_else_than_we_rendered_is_refused() {
    let journey = Journey::with_world(World::empty().await).await;
    journey.forge.set_knobs(|knobs| knobs.project.squash_option = local::gitlab::SquashOption::Always);
    refused(&journey, "set_partition", access(), "forces squashing").await;
    journey.forge.set_knobs(|knobs| knobs.project.squash_option = local::gitlab::SquashOption::Never);
    let done = order(&journey, "set_partition", access()).await;
    assert_eq!((&done["outcome"], &done["warnings"]), (&json!("done"), &json!([])), "{done}");
    assert_eq!(journey.world.count("merge_partition").await, 1);
}

#[tokio::test]
async fn a_project_that_the_forge_does_not_know_is_refused_and_a_silent_forge_is_no_obstacle() {
    let journey = Journey::with_world(World::empty().await).await;
    refused(&journey, "set_partition", with(access(), json!({ "project": "acme/other" })), "does not know").await;
    let options = GitLabOptions {
        base_url: "http://127.0.0.1:1".into(),
        token: "t".into(),
        connect_timeout: Duration::from_millis(500),
        call_timeout: Duration::from_millis(500),
    };
    let silent =
        Relay { store: journey.world.store(), forge: GitLab::new(options).expect("a well-formed address"), outbound: Published::default() };
    let done = order_by(&silent, "set_partition", access()).await;
    assert_eq!((&done["outcome"], &done["after"]["project_id"]), (&json!("done"), &Value::Null), "{done}");
    assert!(done["warnings"][0].as_str().expect("a warning").contains("could not be checked"), "{done}");
    // Asked again when the forge is back, only the number is new.
    let done = order(&journey, "set_partition", access()).await;
    assert_eq!((&done["outcome"], &done["after"]["project_id"]), (&json!("done"), &json!("7")), "{done}");
    // And a forge that falls silent later takes no number away.
    let answer = order_by(&silent, "set_partition", access()).await;
    assert_eq!((&answer["outcome"], &answer["after"]["project_id"]), (&json!("already"), &json!("7")), "{answer}");
}

#[tokio::test]
async fn one_branch_has_one_partition() {
    let journey = Journey::new().await;
    let answer = refused(&journey, "set_partition", with(access(), json!({ "partition": "second" })), "the partition default").await;
    assert_eq!(answer["before"], Value::Null);
    journey.forge.push_as("dave", "other", &[("access/x", Some("x"))], "a branch").await.expect("a push");
    let fields = with(access(), json!({ "partition": "second", "target_branch": "other" }));
    assert_eq!(order(&journey, "set_partition", fields).await["outcome"], "done");
    refused(&journey, "set_partition", json!({ "partition": "second", "target_branch": "main" }), "the partition default").await;
    // The same project under another name, known by its number.
    let unit = SetPartition {
        partition: muster_tests::partition_key("third"),
        wish: PartitionWish {
            project: Some("ACME/Access".into()),
            target_branch: Some("main".into()),
            path_template: Some("access/{target_key}/{subject_id}".into()),
            allowed_prefixes: Some(vec!["access/".into()]),
            project_id: Some(7),
            ..PartitionWish::default()
        },
        command: Command::new("set_partition", principal("ann"), "why", false),
    };
    let CommandOutcome::Refused(refusal) = journey.world.run(&unit).await else { panic!("not refused") };
    assert!(refusal.to_string().contains("the partition default"), "{refusal}");
}

#[tokio::test]
async fn of_many_who_make_the_same_partition_one_has_made_it() {
    let world = World::empty().await;
    let store = world.store_with(|options| options.connections = 8);
    let mut making = Vec::new();
    for number in 0..16 {
        let store = store.clone();
        making.push(tokio::spawn(async move {
            let unit = SetPartition {
                partition: muster_tests::partition_key(if number % 2 == 0 { "even" } else { "odd" }),
                wish: PartitionWish {
                    project: Some("acme/access".into()),
                    target_branch: Some("main".into()),
                    path_template: Some("access/{target_key}/{subject_id}".into()),
                    allowed_prefixes: Some(vec!["access/".into()]),
                    ..PartitionWish::default()
                },
                command: Command::new("set_partition", principal("ann"), "why", false),
            };
            store.run(&unit).await.expect("an outcome").name()
        }));
    }
    let mut outcomes = Vec::new();
    for one in making {
        outcomes.push(one.await.expect("no panic"));
    }
    outcomes.sort_unstable();
    let count = |name: &str| outcomes.iter().filter(|outcome| **outcome == name).count();
    assert_eq!((count("done"), count("already"), count("refused")), (1, 7, 8), "{outcomes:?}");
    assert_eq!((world.count("merge_partition").await, world.count("audit_record").await), (1, 1));
}

#[tokio::test]
async fn a_branch_holds_still_while_a_batch_is_on_its_way() {
    let journey = Journey::with_world(World::with_waiting(1).await).await;
    journey.forge.push_as("dave", "other", &[("access/x", Some("x"))], "a branch").await.expect("a push");
    let moved = json!({ "partition": "default", "target_branch": "other" });
    let batch = journey.world.claimed("token-1").await;
    refused(&journey, "set_partition", moved.clone(), &format!("batch {batch} is on its way")).await;
    let _ = journey.world.run(&muster_tests::succeed(batch, "settler")).await;
    let done = order(&journey, "set_partition", moved).await;
    assert_eq!((&done["outcome"], &done["after"]["target_branch"]), (&json!("done"), &json!("other")), "{done}");
}

#[tokio::test]
async fn an_order_whose_commit_went_unanswered_is_done_once() {
    for cut in [Cut::BeforeServer, Cut::AfterServer] {
        let world = World::new().await;
        let (store, proxy) = world.store_behind(cut, 1).await;
        let unit = SetPartition {
            partition: muster_tests::partition_key("default"),
            wish: PartitionWish { project_id: Some(9), ..PartitionWish::default() },
            command: Command::new("set_partition", principal("ann"), "why", false),
        };
        let outcome = store.run(&unit).await.expect("an outcome");
        assert_eq!(proxy.left(), 0, "the COMMIT was lost");
        let CommandOutcome::Done { change, audit_id } = outcome else { panic!("{cut:?}: {outcome:?}") };
        assert_eq!((&change.before["project_id"], &change.after["project_id"]), (&Value::Null, &json!("9")));
        assert_eq!(world.count(&format!("audit_record WHERE dedup_key = '{audit_id}'")).await, 1);
        let version: u64 = world.scalar("SELECT version FROM merge_partition", ()).await;
        assert_eq!(version, 2);
    }
}

#[tokio::test]
async fn a_paused_partition_claims_nothing_until_it_is_resumed() {
    let journey = Journey::with_world(World::with_waiting(1).await).await;
    already(&journey, "resume", json!({ "partition": "default" })).await;
    let done = rehearsed_then_done(&journey, "pause", json!({ "partition": "default" })).await;
    assert_eq!(done["after"]["paused"]["reason"], "because of a test", "{done}");
    already(&journey, "pause", json!({ "partition": "default" })).await;
    let paused = journey.world.run(&claim("token-1")).await;
    assert_eq!(paused, ClaimOutcome::Paused { reason: "because of a test".into() });
    let done = order(&journey, "pause", json!({ "partition": "default", "until": "2999-01-01T00:00:00+02:00" })).await;
    assert_eq!(done["after"]["paused"]["until"], "2998-12-31T22:00:00.000000Z", "{done}");
    refused(&journey, "pause", json!({ "partition": "default", "until": "2001-01-01T00:00:00Z" }), "has passed").await;
    refused(&journey, "pause", json!({ "partition": "nowhere" }), "no partition nowhere").await;
    rehearsed_then_done(&journey, "resume", json!({ "partition": "default" })).await;
    journey.world.claimed("token-2").await;
}
