//! What makes the stand-in worse than GitLab: each knob, chance by a seed, and scenarios.

use std::path::Path;

use local::gitlab::{MrState, PipelinePlan, Scenario, Webhook};
use reqwest::Method;
use serde_json::{Value, json};

use crate::forge::{Forge, state, status};

#[tokio::test]
async fn lists_can_show_what_was_long_ago() {
    let forge = Forge::passing().await;
    forge.standin.set_knobs(|knobs| knobs.lists_stale_ms = 60_000);
    let (iid, _) = forge.ready("round", "mergeable").await;
    let listed = async || forge.get("/projects/:id/merge_requests?state=all").await.body[0].clone();
    assert_eq!(state(&listed().await), "opened");
    forge.close(iid).await;
    assert_eq!((state(&listed().await), state(&forge.merge_request(iid).await)), ("opened", "closed"));
}

#[tokio::test]
async fn a_read_can_speak_of_tomorrow_or_withhold_the_head() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    forge.standin.set_knobs(|knobs| knobs.unknown_values = 1);
    let strange = forge.merge_request(iid).await;
    assert!(state(&strange).ends_with("_of_tomorrow") && status(&strange).ends_with("_of_tomorrow"), "{strange}");
    assert!(strange["head_pipeline"]["status"] == "a_pipeline_status_of_tomorrow" && strange["a_field_of_tomorrow"].is_object());
    forge.standin.set_knobs(|knobs| knobs.sha_withheld = 1);
    let held = forge.merge_request(iid).await;
    assert!(held["sha"].is_null() && held["diff_refs"].is_null());
    let usual = forge.merge_request(iid).await;
    assert_eq!((state(&usual), &usual["sha"]), ("opened", &json!(sha)));
}

#[tokio::test]
async fn a_planned_skip_is_no_success() {
    let forge = Forge::with(PipelinePlan::Skip).await;
    let (iid, _) = forge.ready("round", "ci_must_pass").await;
    let found = forge.wait(iid, |found| found["head_pipeline"].is_object()).await;
    assert_eq!(found["head_pipeline"]["status"], "skipped");
}

#[tokio::test]
async fn what_is_stuck_is_freed_as_merged_without_a_word() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    forge.standin.set_webhook(Some(Webhook { url: "http://127.0.0.1:9/hook".to_owned(), secret: "s".to_owned() }));
    forge.standin.set_knobs(|knobs| knobs.merges_stuck_locked = 1);
    forge.merge(iid, json!({ "sha": sha })).await;
    let freed = forge.post(&format!("/_standin/merge_requests/{iid}/unstick"), json!({})).await;
    assert_eq!((freed.status, state(&freed.body)), (200, "merged"));
    let merges = forge.standin.deliveries().into_iter().filter(|delivery| delivery.action == "merge").count();
    assert_eq!(merges, 0, "no webhook tells of it");
    // One that did not land is open again.
    let (other, _) = forge.ready("other", "mergeable").await;
    forge.post(&format!("/_standin/merge_requests/{other}/lock"), json!({})).await;
    let freed = forge.post(&format!("/_standin/merge_requests/{other}/unstick"), json!({})).await;
    assert_eq!(state(&freed.body), "opened");
}

#[tokio::test]
async fn people_edit_and_point_elsewhere() {
    let forge = Forge::with(PipelinePlan::Hang).await;
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    forge.standin.git(&["branch", "release", "main"]).unwrap();
    forge.post(&format!("/_standin/merge_requests/{iid}/retitle"), json!({ "to": "Mine now" })).await;
    let answer = forge.post(&format!("/_standin/merge_requests/{iid}/retarget"), json!({ "to": "release", "by": "dave" })).await;
    assert_eq!((answer.status, &answer.body["title"], &answer.body["target_branch"]), (200, &json!("Mine now"), &json!("release")));
    assert_eq!(answer.body["auto_merge"], json!(false), "what was armed for another branch is disarmed");
    let without = forge.post(&format!("/_standin/merge_requests/{iid}/retarget"), json!({})).await;
    assert_eq!(without.status, 400);
}

/// Statuses of forty calls under a seed; 0 where no answer came.
async fn statuses(seed: u64) -> Vec<u16> {
    let mut forge = Forge::passing().await;
    let chaos = json!({ "seed": seed, "lost": 0.1, "broken": 0.1, "bad_gateway": 0.1, "limited": 0.1, "locked": 0.1 });
    forge.standin.play(serde_json::from_value(json!({ "chaos": chaos })).unwrap()).unwrap();
    let mut all = Vec::new();
    for _ in 0..40 {
        let answer = forge.try_call(Method::GET, "/version", None).await;
        all.push(answer.map_or(0, |answer| answer.status));
    }
    all
}

#[tokio::test]
async fn the_same_seed_makes_the_same_answers() {
    let (first, again, other) = tokio::join!(statuses(7), statuses(7), statuses(8));
    assert_eq!(first, again);
    assert_ne!(first, other);
    for status in [0, 200, 409, 429, 500, 502] {
        assert!(first.contains(&status) || other.contains(&status), "{status} in {first:?} or {other:?}");
    }
    let forge = Forge::passing().await;
    let refused = forge.put("/_standin/chaos", json!({ "lost": 0.7, "slow": 0.7 })).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
}

#[tokio::test]
async fn every_scenario_that_we_keep_is_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let scenario = Scenario::read(&path).unwrap_or_else(|error| panic!("{error:#}"));
        let mut forge = Forge::passing().await;
        forge.standin.play(scenario).unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        count += 1;
    }
    assert!(count >= 4);
    let forge = Forge::passing().await;
    let wrong = forge.post("/_standin/scenario", json!({ "knobs": { "no_such_knob": 1 } })).await;
    assert_eq!(wrong.status, 400, "{}", wrong.body);
}

#[tokio::test]
async fn people_of_a_scenario_act_when_their_time_has_come() {
    let mut forge = Forge::with(PipelinePlan::Hang).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/closed-yet-merged.json");
    let mut scenario = Scenario::read(&path).unwrap();
    scenario.people[0].after_ms = 0;
    forge.standin.play(scenario).unwrap();
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    assert_eq!(forge.standin.merge_requests()[0].state, MrState::Opened, "nobody acts before it is armed");
    forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    let closed = forge.wait(iid, |found| state(found) == "closed").await;
    assert_eq!(closed["closed_by"]["username"], Value::from("dave"));
    while !forge.on_target(&sha) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
