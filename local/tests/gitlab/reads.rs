//! Reading the repository and the project.

use local::gitlab::PipelineStatus;
use serde_json::{Value, json};

use crate::forge::{Forge, message};

#[tokio::test]
async fn a_commit_shows_its_trailers_and_where_it_is() {
    let forge = Forge::passing().await;
    let sha = forge.commit("muster/default/0a", "a.json", "one\ntwo\n").await;
    let found = forge.get(&format!("/projects/:id/repository/commits/{sha}")).await.body;
    assert_eq!(found["trailers"], json!({ "Muster-Batch": "muster/default/0a" }));
    assert_eq!(found["parent_ids"], json!([forge.head("main")]));
    assert_eq!(found["message"], json!("Add a.json\n\nMuster-Batch: muster/default/0a"));
    assert_eq!(found["stats"], json!({ "additions": 2, "deletions": 0, "total": 2 }));
    let refs = forge.get(&format!("/projects/:id/repository/commits/{sha}/refs?type=branch")).await.body;
    assert_eq!(refs, json!([{ "type": "branch", "name": "muster/default/0a" }]));
    let missing = forge.get("/projects/:id/repository/commits/0123456789").await;
    assert_eq!(message(&missing), (404, json!("404 Commit Not Found")));
    let list = forge.get("/projects/:id/repository/commits?ref_name=muster%2Fdefault%2F0a&per_page=1").await.body;
    assert_eq!((list.as_array().unwrap().len(), &list[0]["id"]), (1, &json!(sha)));
    let range = forge.get("/projects/:id/repository/commits?ref_name=main..muster%2Fdefault%2F0a").await.body;
    assert_eq!((range.as_array().unwrap().len(), &range[0]["id"]), (1, &json!(sha)));
    assert_eq!(forge.get("/projects/:id/repository/commits?ref_name=nope..main").await.status, 404);
    let future = forge.get("/projects/:id/repository/commits?ref_name=main&since=2099-01-01T00:00:00Z").await.body;
    assert_eq!(future, json!([]));
}

#[tokio::test]
async fn merge_base_and_compare_agree_with_git() {
    let forge = Forge::passing().await;
    let base = forge.head("main");
    let sha = forge.commit("work", "a.json", "a\n").await;
    forge.standin.push_as("alice", "main", &[("b", Some("b\n"))], "B").await.unwrap();
    let found = forge.get("/projects/:id/repository/merge_base?refs[]=main&refs[]=work").await.body;
    assert_eq!(found["id"], json!(base));
    let unknown = forge.get("/projects/:id/repository/merge_base?refs[]=main&refs[]=nope").await;
    assert_eq!(message(&unknown), (400, json!("Could not find ref: nope")));
    let compared = forge.get("/projects/:id/repository/compare?from=main&to=work").await.body;
    assert_eq!((compared["commits"].as_array().unwrap().len(), &compared["commits"][0]["id"]), (1, &json!(sha)));
    let diff = &compared["diffs"][0];
    assert_eq!((&diff["new_path"], &diff["new_file"], &diff["diff"]), (&json!("a.json"), &json!(true), &json!("@@ -0,0 +1 @@\n+a\n")));
    assert_eq!(compared["diffs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn files_and_trees_are_read_at_a_ref() {
    let forge = Forge::passing().await;
    forge.commit("work", "grants/a b.json", "hello\n").await;
    let file = forge.get("/projects/:id/repository/files/grants%2Fa%20b.json?ref=work").await;
    assert_eq!((file.status, &file.body["content"], &file.body["size"]), (200, &json!("aGVsbG8K"), &json!(6)));
    let raw = forge.get("/projects/:id/repository/files/grants%2Fa%20b.json/raw?ref=work").await;
    assert_eq!((raw.status, raw.body), (200, json!("hello\n")));
    let missing = forge.get("/projects/:id/repository/files/nope?ref=work").await;
    assert_eq!(message(&missing), (404, json!("404 File Not Found")));
    let blob = file.body["blob_id"].as_str().unwrap();
    assert_eq!(forge.get(&format!("/projects/:id/repository/blobs/{blob}/raw")).await.body, json!("hello\n"));
    assert_eq!(forge.get(&format!("/projects/:id/repository/blobs/{blob}")).await.body["content"], json!("aGVsbG8K"));
    let head = forge.head("work");
    assert_eq!(message(&forge.get(&format!("/projects/:id/repository/blobs/{head}")).await), (404, json!("404 Blob Not Found")));
    let tree = forge.get("/projects/:id/repository/tree?ref=work&recursive=True").await.body;
    let paths: Vec<&Value> = tree.as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
    assert_eq!(paths, ["grants", "README.md", "grants/a b.json"]);
    let inner = forge.get("/projects/:id/repository/tree?ref=work&path=grants").await.body;
    assert_eq!((&inner[0]["path"], &inner[0]["name"]), (&json!("grants/a b.json"), &json!("a b.json")));
    assert_eq!(forge.get("/projects/:id/repository/tree?ref=work&path=nope").await.status, 404);
}

#[tokio::test]
async fn lists_come_in_pages_with_links() {
    let forge = Forge::passing().await;
    for name in ["a", "b", "c"] {
        forge.commit(name, name, name).await;
        forge.post("/projects/:id/merge_requests", json!({ "source_branch": name, "target_branch": "main", "title": name })).await;
    }
    let mut url = format!("{}/api/v4/projects/7/merge_requests?state=opened&sort=asc&per_page=2", forge.standin.url());
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let answer = reqwest::Client::new().get(&url).header("PRIVATE-TOKEN", "glpat-test").send().await.unwrap();
        assert_eq!(answer.headers()["x-total"], "3");
        let link = answer.headers()["link"].to_str().unwrap().to_owned();
        let body: Vec<Value> = answer.json().await.unwrap();
        found.extend(body.iter().map(|found| found["iid"].as_u64().unwrap()));
        pages += 1;
        match link.split(", ").find(|link| link.ends_with("rel=\"next\"")) {
            Some(next) => url = next[1..next.find('>').unwrap()].to_owned(),
            None => break,
        }
    }
    assert_eq!((found, pages), (vec![1, 2, 3], 2));
    let only = forge.get("/projects/:id/merge_requests?source_branch=b&state=all&author_username=muster-bot").await.body;
    assert_eq!((only.as_array().unwrap().len(), &only[0]["iid"]), (1, &json!(2)));
    assert_eq!(forge.get("/projects/:id/merge_requests?author_username=alice").await.body, json!([]));
}

#[tokio::test]
async fn a_preflight_finds_what_it_needs() {
    let forge = Forge::passing().await;
    let project = forge.get("/projects/:id").await.body;
    let seen = ["id", "path_with_namespace", "default_branch", "merge_method", "only_allow_merge_if_pipeline_succeeds"]
        .map(|name| project[name].clone());
    assert_eq!(seen, [json!(7), json!("acme/access"), json!("main"), json!("merge"), json!(true)]);
    assert_eq!(project["permissions"]["project_access"]["access_level"], json!(40));
    assert_eq!(forge.get("/projects/:id/protected_branches/main").await.status, 200);
    assert_eq!(forge.get("/projects/:id/protected_branches/other").await.status, 404);
    assert_eq!(forge.get("/personal_access_tokens/self").await.body["scopes"], json!(["api"]));
    assert_eq!(forge.get("/user").await.body["username"], json!("muster-bot"));
    assert_eq!(forge.get("/projects/:id/hooks").await.body, json!([]));
    assert_eq!(forge.get("/nowhere").await.body, json!({ "error": "404 Not Found" }));
}

#[tokio::test]
async fn pipelines_are_listed_by_commit() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    let list = forge.get(&format!("/projects/:id/pipelines?sha={sha}")).await.body;
    assert_eq!((list.as_array().unwrap().len(), &list[0]["status"]), (1, &json!("success")));
    assert_eq!(list[0]["ref"], json!(format!("refs/merge-requests/{iid}/head")));
    let more = forge.post(&format!("/projects/:id/merge_requests/{iid}/pipelines"), json!({})).await;
    assert_eq!(more.status, 201);
    assert_eq!(forge.get(&format!("/projects/:id/merge_requests/{iid}/pipelines")).await.body.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn pipelines_of_a_branch_are_told_apart_from_those_of_merge_requests() {
    let forge = Forge::passing().await;
    forge.ready("round", "mergeable").await;
    let added = forge.post("/_standin/pipelines", json!({ "branch": "main", "status": "failed" })).await;
    assert_eq!(added.status, 201);
    forge.standin.add_branch_pipeline("main", PipelineStatus::Success).await.unwrap();
    let list = forge.get("/projects/:id/pipelines?ref=main&order_by=id&sort=desc").await.body;
    let seen: Vec<(&Value, &Value)> = list.as_array().unwrap().iter().map(|found| (&found["status"], &found["source"])).collect();
    assert_eq!(seen, [(&json!("success"), &json!("push")), (&json!("failed"), &json!("push"))]);
    assert_eq!(list[0]["sha"], json!(forge.head("main")));
    assert_eq!(forge.get("/projects/:id/pipelines?status=success").await.body.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_restart_keeps_the_repository_and_counts_on() {
    let forge = Forge::passing().await;
    let (iid, _) = forge.ready("round", "mergeable").await;
    let repository = forge.standin.repository().to_owned();
    let options = local::gitlab::Options {
        repository,
        project: "acme/access".to_owned(),
        project_id: 7,
        target_branch: "main".to_owned(),
        token: "t".to_owned(),
        webhook: None,
        pipeline: local::gitlab::PipelinePlan::None,
        bind: ([127, 0, 0, 1], 0).into(),
    };
    let second = local::gitlab::StandIn::start(options).await.unwrap();
    let client = reqwest::Client::new();
    let body = json!({ "source_branch": "round", "target_branch": "main", "title": "again" });
    let url = format!("{}/api/v4/projects/7/merge_requests", second.url());
    let opened: Value = client.post(url).header("PRIVATE-TOKEN", "t").json(&body).send().await.unwrap().json().await.unwrap();
    assert_eq!(opened["iid"], json!(iid + 1));
    let url = second.url();
    second.stop().await;
    assert!(client.get(url).send().await.is_err(), "nothing listens after the stop");
}
