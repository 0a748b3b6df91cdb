//! What GitLab says no to, in its words.

use serde_json::{Value, json};

use crate::forge::{Answer, Forge, message};

async fn commit(forge: &Forge, body: Value) -> Answer {
    forge.post("/projects/:id/repository/commits", body).await
}

fn one(branch: &str, action: &str, path: &str) -> Value {
    json!({ "branch": branch, "start_branch": "main", "commit_message": "m", "actions": [{ "action": action, "file_path": path, "content": "x" }] })
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn commits_are_refused_with_gitlabs_words() {
    let forge = Forge::passing().await;
    let main = forge.head("main");
    forge.commit("taken", "a", "a").await;
    let nowhere = "0123456789012345678901234567890123456789";
    let without_start = |branch: &str| json!({ "branch": branch, "commit_message": "m", "actions": [{ "action": "create", "file_path": "b", "content": "x" }] });
    let cases = [
        (one("taken", "create", "b"), "A branch called 'taken' already exists. Switch to that branch in order to make changes"),
        (without_start("missing"), "You can only create or edit files when you are on a branch"),
        (with(one("new", "create", "b"), json!({ "start_sha": main })), "You can't pass both start_branch and start_sha"),
        (with(without_start("new"), json!({ "start_sha": "abc" })), "Invalid start_sha 'abc'"),
        (with(without_start("new"), json!({ "start_sha": nowhere })), &format!("Cannot find start_sha '{nowhere}'")),
        (one("new", "create", "README.md"), "A file with this name already exists"),
        (one("new", "update", "nope"), "A file with this name doesn't exist"),
        (one("new", "delete", "nope"), "A file with this name doesn't exist"),
        (one("new", "create", "../x"), "Path cannot include directory traversal"),
        (one("no..dots", "create", "b"), "Something went wrong when we tried to create 'no..dots' for you: Branch name is invalid"),
    ];
    for (body, text) in cases {
        assert_eq!(message(&commit(&forge, body).await), (400, json!(text)));
    }
    assert_eq!(forge.standin.git(&["for-each-ref", "--format=%(refname)", "refs/heads"]).unwrap(), "refs/heads/main\nrefs/heads/taken");
}

#[tokio::test]
async fn a_stale_last_commit_id_refuses_an_update() {
    let forge = Forge::passing().await;
    let old = forge.head("main");
    forge.standin.push_as("alice", "main", &[("README.md", Some("new\n"))], "Edit").await.unwrap();
    let body = |expected: &str| {
        json!({ "branch": "main", "commit_message": "m", "actions": [
            { "action": "update", "file_path": "README.md", "content": "mine\n", "last_commit_id": expected },
        ] })
    };
    let text = json!("The file has changed since you started editing it: README.md");
    assert_eq!(message(&commit(&forge, body(&old)).await), (400, text));
    let current = forge.head("main");
    assert_eq!(commit(&forge, body(&current)).await.status, 201);
    assert_eq!(forge.standin.git(&["show", "main:README.md"]).unwrap(), "mine");
}

#[tokio::test]
async fn all_actions_are_one_commit_or_none() {
    let forge = Forge::passing().await;
    let body = |actions: Value| json!({ "branch": "work", "start_branch": "main", "commit_message": "m", "actions": actions });
    let refused = commit(
        &forge,
        body(json!([
            { "action": "create", "file_path": "a", "content": "a" },
            { "action": "delete", "file_path": "nope" },
        ])),
    )
    .await;
    assert_eq!(refused.status, 400);
    let done = commit(
        &forge,
        body(json!([
            { "action": "create", "file_path": "d/a", "content": "aGk=", "encoding": "base64" },
            { "action": "create", "file_path": "d/b", "content": "b" },
            { "action": "update", "file_path": "d/b", "content": "bb" },
            { "action": "move", "file_path": "docs/README.md", "previous_path": "README.md" },
            { "action": "chmod", "file_path": "d/a", "execute_filemode": true },
        ])),
    )
    .await;
    assert_eq!(done.status, 201, "{}", done.body);
    let tree = forge.standin.git(&["ls-tree", "-r", "--format=%(objectmode) %(path)", "work"]).unwrap();
    assert_eq!(tree, "100755 d/a\n100644 d/b\n100644 docs/README.md");
    let contents = forge.standin.git(&["show", "work:d/a"]).unwrap() + &forge.standin.git(&["show", "work:d/b"]).unwrap();
    assert_eq!(contents, "hibb");
    assert_eq!(forge.standin.git(&["rev-list", "--count", "main..work"]).unwrap(), "1");
}

#[tokio::test]
async fn missing_parameters_are_all_named() {
    let forge = Forge::passing().await;
    let answer = commit(&forge, json!({ "actions": [] })).await;
    assert_eq!((answer.status, &answer.body["error"]), (400, &json!("branch is missing, commit_message is missing")));
    let answer = forge.post("/projects/:id/merge_requests", json!({ "title": "t" })).await;
    assert_eq!((answer.status, &answer.body["error"]), (400, &json!("source_branch is missing, target_branch is missing")));
}

#[tokio::test]
async fn merge_requests_are_refused_with_gitlabs_words() {
    let forge = Forge::passing().await;
    let open = |source: &'static str, target: &'static str| {
        forge.post("/projects/:id/merge_requests", json!({ "source_branch": source, "target_branch": target, "title": "t" }))
    };
    assert_eq!(message(&open("nope", "main").await), (400, json!({ "source_branch": ["does not exist"] })));
    let same = json!(["You can't use same project/branch for source and target"]);
    assert_eq!(message(&open("main", "main").await), (422, same));
    forge.commit("round", "a", "a").await;
    assert_eq!(open("round", "main").await.status, 201);
    let twice = json!(["Another open merge request already exists for this source branch: !1"]);
    assert_eq!(message(&open("round", "main").await), (409, twice));
    assert_eq!(message(&forge.get("/projects/:id/merge_requests/99").await), (404, json!("404 Not found")));
}

#[tokio::test]
async fn merges_are_refused_in_gitlabs_order() {
    let forge = Forge::passing().await;
    let (iid, sha) = forge.ready("round", "mergeable").await;
    let stale = forge.merge(iid, json!({ "sha": "0000" })).await;
    assert_eq!(message(&stale), (409, json!(format!("SHA does not match HEAD of source branch: {sha}"))));

    forge.standin.set_knobs(|knobs| knobs.project.may_merge = false);
    assert_eq!(message(&forge.merge(iid, json!({ "sha": "0000" })).await), (401, json!("401 Unauthorized")));
    forge.standin.set_knobs(|knobs| knobs.project.sha_required = true);
    assert_eq!(message(&forge.merge(iid, json!({})).await), (400, json!("SHA must be provided when merging")));
    forge.standin.set_knobs(|knobs| knobs.project.may_merge = true);

    assert_eq!(forge.merge(iid, json!({ "sha": sha })).await.status, 200);
    let again = forge.merge(iid, json!({ "sha": sha, "auto_merge": true })).await;
    assert_eq!(message(&again), (405, json!("405 Method Not Allowed")), "already merged");
}

#[tokio::test]
async fn a_wrong_token_or_project_is_refused() {
    let forge = Forge::passing().await;
    assert_eq!(message(&forge.get("/projects/8").await), (404, json!("404 Project Not Found")));
    let url = format!("{}/api/v4/user", forge.standin.url());
    let client = reqwest::Client::new();
    for (name, value, status) in [("PRIVATE-TOKEN", "wrong", 401), ("Authorization", "Bearer glpat-test", 200), ("x-none", "1", 401)] {
        assert_eq!(client.get(&url).header(name, value).send().await.unwrap().status().as_u16(), status, "{name}: {value}");
    }
}

#[tokio::test]
async fn branches_are_made_once_and_deleted_once() {
    let forge = Forge::passing().await;
    let make =
        |name: &'static str, from: &'static str| forge.post("/projects/:id/repository/branches", json!({ "branch": name, "ref": from }));
    assert_eq!(make("a/b", "main").await.status, 201);
    assert_eq!(message(&make("a/b", "main").await), (400, json!("Branch already exists")));
    assert_eq!(message(&make("c", "nope").await), (400, json!("Invalid reference name: nope")));
    assert_eq!(forge.get("/projects/:id/repository/branches/a%2Fb").await.body["commit"]["id"], json!(forge.head("main")));
    assert_eq!(forge.delete("/projects/:id/repository/branches/a%2Fb").await.status, 204);
    assert_eq!(message(&forge.delete("/projects/:id/repository/branches/a%2Fb").await), (404, json!("404 Branch Not Found")));
    assert_eq!(forge.delete("/projects/:id/repository/branches/main").await.status, 403);
}
