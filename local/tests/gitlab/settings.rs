//! Settings of the project that change what a merge does or what may be written.

use local::gitlab::{MergeMethod, PipelinePlan, SquashOption};
use serde_json::json;

use crate::forge::{Forge, message, state, status};

#[tokio::test]
async fn fast_forward_needs_the_whole_target_and_makes_no_merge_commit() {
    let forge = Forge::passing().await;
    forge.standin.set_knobs(|knobs| knobs.project.merge_method = MergeMethod::Ff);
    let (one, first) = forge.ready("one", "mergeable").await;
    let (two, second) = forge.ready("two", "mergeable").await;
    let merged = forge.merge(one, json!({ "sha": first })).await;
    assert_eq!((merged.status, merged.body["merge_commit_sha"].is_null(), forge.head("main")), (200, true, first));
    forge.wait(two, |found| status(found) == "need_rebase").await;
    assert_eq!(forge.merge(two, json!({ "sha": second })).await.status, 405);
    assert_eq!(forge.get("/projects/:id").await.body["merge_method"], json!("ff"));
}

#[tokio::test]
async fn semi_linear_history_disarms_when_the_target_moves() {
    let forge = Forge::with(PipelinePlan::Hang).await;
    forge.standin.set_knobs(|knobs| knobs.project.merge_method = MergeMethod::RebaseMerge);
    let (iid, sha) = forge.ready("round", "ci_still_running").await;
    forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    forge.standin.push_as("alice", "main", &[("b", Some("b"))], "B").await.unwrap();
    let found = forge.wait(iid, |found| status(found) == "need_rebase").await;
    assert_eq!(found["merge_when_pipeline_succeeds"], json!(false));
}

#[tokio::test]
async fn a_forced_squash_squashes_unasked() {
    let forge = Forge::passing().await;
    forge.standin.set_knobs(|knobs| knobs.project.squash_option = SquashOption::Always);
    let (iid, sha) = forge.ready("round", "mergeable").await;
    let merged = forge.merge(iid, json!({ "sha": sha })).await;
    assert_eq!((merged.status, merged.body["squash_commit_sha"].is_string(), forge.on_target(&sha)), (200, true, false));
}

#[tokio::test]
async fn an_archived_project_takes_nothing() {
    let forge = Forge::passing().await;
    forge.commit("round", "a", "a").await;
    forge.standin.set_knobs(|knobs| knobs.project.archived = true);
    let body = json!({ "source_branch": "round", "target_branch": "main", "title": "t" });
    assert_eq!(forge.post("/projects/:id/merge_requests", body).await.status, 403);
    assert_eq!(forge.post("/projects/:id/repository/branches", json!({ "branch": "b", "ref": "main" })).await.status, 403);
    assert_eq!(forge.get("/projects/:id").await.body["archived"], json!(true));
}

#[tokio::test]
async fn push_rules_and_protected_branches_refuse_commits() {
    let forge = Forge::passing().await;
    forge.standin.set_knobs(|knobs| {
        knobs.project.prohibited_path = Some(".pem".to_owned());
        knobs.project.refused_branch = Some("secret/".to_owned());
    });
    let commit = |branch: &'static str, path: &'static str| {
        let actions = json!([{ "action": "create", "file_path": path, "content": "x" }]);
        forge.post(
            "/projects/:id/repository/commits",
            json!({ "branch": branch, "start_branch": "main", "commit_message": "m", "actions": actions }),
        )
    };
    let rule = json!("File name k.pem was prohibited by the pattern \".pem\".");
    assert_eq!(message(&commit("round", "k.pem").await), (400, rule));
    let protected = json!("403 Forbidden - You are not allowed to push into this branch");
    assert_eq!(message(&commit("secret/x", "k").await), (403, protected));
    assert_eq!(commit("round", "k").await.status, 201);
}

#[tokio::test]
async fn a_draft_waits_for_a_person() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    let path = format!("/projects/:id/merge_requests/{iid}");
    forge.put(&path, json!({ "title": "Draft: round" })).await;
    assert_eq!(status(&forge.merge_request(iid).await), "draft_status");
    assert_eq!(forge.merge(iid, json!({ "sha": sha })).await.status, 405);
    let retargeted = forge.put(&path, json!({ "title": "round", "target_branch": "nope" })).await;
    assert_eq!(message(&retargeted), (400, json!({ "target_branch": ["does not exist"] })));
    assert_eq!(state(&forge.merge_request(iid).await), "opened");
}
