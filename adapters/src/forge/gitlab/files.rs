//! Which files exist at a commit, read in bulk: 100 paths a call.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use sha1::Digest as _;

use super::branches::unknown_project;
use super::client::{Client, Taken};
use super::refusal::is_passing;
use super::reply::Reply;
use super::route::{encoded, of_project, with_query};
use crate::forge::{ExistingFile, ForgeError, PathQuery, ProjectRef};

/// GitLab's largest page.
const PATHS_A_CALL: usize = 100;

const CALL: &str = "read blobs";

const BY_ID: &str = "query($project: ID!, $ref: String!, $paths: [String!]!) { project(fullPath: $project) { repository { \
    blobs(ref: $ref, paths: $paths) { nodes { path oid } } } } }";

const WITH_CONTENT: &str = "query($project: ID!, $ref: String!, $paths: [String!]!, $hashed: [String!]!) { \
    project(fullPath: $project) { repository { blobs(ref: $ref, paths: $paths) { nodes { path oid } } \
    hashed: blobs(ref: $ref, paths: $hashed) { nodes { path rawBlob } } } } }";

pub(super) async fn existing_paths(
    client: &Client,
    project: &ProjectRef,
    commit: &str,
    paths: &[PathQuery],
) -> Result<BTreeMap<String, ExistingFile>, ForgeError> {
    let mut wanted: BTreeMap<&str, bool> = BTreeMap::new();
    for query in paths {
        *wanted.entry(&query.path).or_default() |= query.hash;
    }
    let wanted: Vec<(&str, bool)> = wanted.into_iter().collect();
    let mut found = BTreeMap::new();
    for chunk in wanted.chunks(PATHS_A_CALL) {
        read_chunk(client, project, commit, chunk, &mut found).await?;
    }
    Ok(found)
}

async fn read_chunk(
    client: &Client,
    project: &ProjectRef,
    commit: &str,
    chunk: &[(&str, bool)],
    found: &mut BTreeMap<String, ExistingFile>,
) -> Result<(), ForgeError> {
    let paths: Vec<&str> = chunk.iter().map(|(path, _)| *path).collect();
    let hashed: Vec<&str> = chunk.iter().filter(|(_, hash)| *hash).map(|(path, _)| *path).collect();
    let blobs = match ask(client, project, commit, &paths, &hashed).await? {
        Some(blobs) => blobs,
        // The contents are more than we take at once: only the ids, and each content streamed below.
        None => ask(client, project, commit, &paths, &[]).await?.ok_or_else(|| ForgeError::Unexpected {
            call: CALL,
            status: 200,
            detail: "a list of ids is too large".to_owned(),
        })?,
    };
    let mut contents: BTreeMap<String, String> =
        blobs.hashed.nodes.into_iter().filter_map(|node| Some((node.path, node.content?))).collect();
    for node in blobs.blobs.nodes {
        let Some(blob_id) = node.oid else { continue };
        let sha256 = if hashed.contains(&node.path.as_str()) {
            let content = contents.remove(&node.path);
            Some(sha256_of(client, project, commit, &node.path, &blob_id, content).await?)
        } else {
            None
        };
        found.insert(node.path, ExistingFile { blob_id, sha256 });
    }
    Ok(())
}

/// GraphQL carries text only: a content that is not UTF-8 arrives changed, a large one cut. Its blob id tells; then the
/// bytes are asked for.
async fn sha256_of(
    client: &Client,
    project: &ProjectRef,
    commit: &str,
    path: &str,
    blob_id: &str,
    content: Option<String>,
) -> Result<String, ForgeError> {
    if let Some(content) = content.filter(|content| blob_id_of(content.as_bytes()) == blob_id) {
        return Ok(hex::encode(sha2::Sha256::digest(content.as_bytes())));
    }
    let route = of_project(project, &format!("repository/files/{}/raw", encoded(path)));
    client.sha256_of("read a file", &with_query(&route, &[("ref", commit)])).await
}

/// Git's object id of a blob with this content.
pub(super) fn blob_id_of(content: &[u8]) -> String {
    let mut hash = sha1::Sha1::new();
    hash.update(format!("blob {}\0", content.len()));
    hash.update(content);
    hex::encode(hash.finalize())
}

/// `None` where the answer is too large.
async fn ask(
    client: &Client,
    project: &ProjectRef,
    commit: &str,
    paths: &[&str],
    hashed: &[&str],
) -> Result<Option<Repository>, ForgeError> {
    let body = if hashed.is_empty() {
        json!({"query": BY_ID, "variables": {"project": project.path, "ref": commit, "paths": paths}})
    } else {
        json!({"query": WITH_CONTENT,
            "variables": {"project": project.path, "ref": commit, "paths": paths, "hashed": hashed}})
    };
    match client.graphql(CALL, &body).await? {
        Taken::Whole(reply) => repository_in(&reply, project).map(Some),
        Taken::TooLarge => Ok(None),
    }
}

/// GraphQL answers 200 to what it could not do.
fn repository_in(reply: &Reply, project: &ProjectRef) -> Result<Repository, ForgeError> {
    if !reply.is_success() {
        return Err(reply.unexpected());
    }
    let answer: GraphQl = reply.parse()?;
    if let Some(problems) = answer.errors.filter(|problems| !problems.is_empty()) {
        let detail = problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; ");
        return Err(if is_passing(&detail) {
            ForgeError::Unreachable { detail }
        } else {
            ForgeError::Unexpected { call: CALL, status: reply.status, detail }
        });
    }
    answer.found.and_then(|found| found.project).and_then(|project| project.repository).ok_or_else(|| unknown_project(project))
}

#[derive(Deserialize)]
struct GraphQl {
    #[serde(rename = "data")]
    found: Option<Found>,
    #[serde(default)]
    errors: Option<Vec<Problem>>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Found {
    project: Option<Project>,
}

#[derive(Deserialize)]
struct Project {
    repository: Option<Repository>,
}

#[derive(Deserialize)]
struct Repository {
    blobs: Nodes,
    #[serde(default)]
    hashed: Nodes,
}

#[derive(Deserialize, Default)]
struct Nodes {
    #[serde(default)]
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    path: String,
    #[serde(default)]
    oid: Option<String>,
    #[serde(default, rename = "rawBlob")]
    content: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> ProjectRef {
        ProjectRef { path: "acme/access".into(), id: None, target_branch: "main".into() }
    }

    fn answered(body: &str) -> Result<Repository, ForgeError> {
        repository_in(&Reply { call: CALL, status: 200, body: body.into(), next_page: None }, &project())
    }

    #[test]
    fn a_blob_id_is_gits_own() {
        assert_eq!(blob_id_of(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id_of(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn what_graphql_could_not_do_is_not_read_as_nothing_exists() {
        assert!(matches!(answered(r#"{"data":{"project":null}}"#), Err(ForgeError::NotFound { .. })));
        let passing = r#"{"data":{"project":{"repository":{"blobs":null}}},"errors":[{"message":"Timeout on blobs"}]}"#;
        assert!(answered(passing).is_err());
        assert!(matches!(answered(r#"{"errors":[{"message":"Timeout on validation of query"}]}"#), Err(ForgeError::Unreachable { .. })));
        assert!(matches!(answered(r#"{"errors":[{"message":"Field 'x' doesn't exist"}]}"#), Err(ForgeError::Unexpected { .. })));
    }
}
