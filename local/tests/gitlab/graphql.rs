//! The one GraphQL query.

use serde_json::{Value, json};

use crate::forge::Forge;

const QUERY: &str = "query($project: ID!, $ref: String!, $paths: [String!]!) {
  project(fullPath: $project) { repository { blobs(ref: $ref, paths: $paths) { nodes { path oid rawBlob size } } } }
}";

async fn ask(forge: &Forge, query: &str, variables: Value) -> Value {
    let answer = forge.post("/api/graphql", json!({ "query": query, "variables": variables })).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

#[tokio::test]
async fn blobs_are_read_in_bulk_and_absent_paths_are_left_out() {
    let forge = Forge::passing().await;
    forge.commit("work", "grants/ä b.json", "{\"a\":1}\n").await;
    let body = ask(&forge, QUERY, json!({ "project": "acme/access", "ref": "work", "paths": ["nope", "grants/ä b.json", "grants"] })).await;
    let oid = forge.standin.git(&["rev-parse", "work:grants/ä b.json"]).unwrap();
    let node = json!({ "path": "grants/ä b.json", "oid": oid, "rawBlob": "{\"a\":1}\n", "size": "8" });
    assert_eq!(body, json!({ "data": { "project": { "repository": { "blobs": { "nodes": [node] } } } } }));
}

#[tokio::test]
async fn aliases_and_several_blobs_answer_one_query() {
    let forge = Forge::passing().await;
    forge.commit("work", "x", "x").await;
    let query = "query Both($p: ID!, $a: String!, $paths: [String!]!) { project(fullPath: $p) { repository {
        before: blobs(ref: \"main\", paths: $paths) { nodes { path } }
        after: blobs(ref: $a, paths: $paths) { nodes { p: path mode } }
    } } }";
    let body = ask(&forge, query, json!({ "p": "acme/access", "a": "work", "paths": ["x", "README.md"] })).await;
    let wanted = json!({
        "before": { "nodes": [{ "path": "README.md" }] },
        "after": { "nodes": [{ "p": "x", "mode": "100644" }, { "p": "README.md", "mode": "100644" }] },
    });
    assert_eq!(body["data"]["project"]["repository"], wanted);
}

#[tokio::test]
async fn an_unknown_project_is_null() {
    let forge = Forge::passing().await;
    let body = ask(&forge, QUERY, json!({ "project": "acme/other", "ref": "main", "paths": [] })).await;
    assert_eq!(body, json!({ "data": { "project": null } }));
}

#[tokio::test]
async fn everything_else_is_an_error() {
    let forge = Forge::passing().await;
    let many: Vec<String> = (0..101).map(|number| format!("f{number}")).collect();
    let good = json!({ "project": "acme/access", "ref": "main", "paths": ["x"] });
    let cases = [
        (QUERY, json!({ "project": "acme/access", "ref": "main", "paths": many }), "paths: at most 100"),
        (QUERY, json!({ "project": "acme/access", "ref": "main" }), "Variable $paths of type [String!]!"),
        ("{ currentUser { name } }", json!({}), "Field 'currentUser' doesn't exist on type 'Query'"),
        ("query($project: ID!) { project(fullPath: $project) { issues { nodes { id } } } }", good.clone(), "Field 'issues'"),
        ("query { project(fullPath: $x) { repository { rootRef } } }", json!({}), "Variable $x is used"),
        ("query($x: Int) { project(fullPath: \"acme/access\") { id } }", json!({}), "Variable $x is declared by query but not used"),
        ("query { project(", json!({}), "Unexpected end of document"),
        ("mutation { x }", json!({}), "Parse error"),
    ];
    for (query, variables, text) in cases {
        let body = ask(&forge, query, variables).await;
        let said = body["errors"][0]["message"].as_str().unwrap();
        assert!(said.starts_with(text), "{said:?} for {query}");
        assert!(body.get("data").is_none());
    }
}
