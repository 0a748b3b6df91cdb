use std::collections::BTreeMap;

use adapters::forge::{ExistingFile, Forge, ForgeError, PathQuery};
use local::gitlab::{Fault, FaultEffect};
use sha2::{Digest, Sha256};

use crate::world::World;

fn query(path: &str, hash: bool) -> PathQuery {
    PathQuery { path: path.to_owned(), hash }
}

fn sha256(content: &str) -> Option<String> {
    Some(hex::encode(Sha256::digest(content)))
}

#[tokio::test]
async fn existence_is_read_a_hundred_paths_at_a_time() {
    let world = World::new().await;
    let contents: Vec<(String, String)> = (0..130).map(|number| (format!("f/{number:03}"), format!("{number}\n"))).collect();
    let files: Vec<(&str, Option<&str>)> = contents.iter().map(|(path, content)| (path.as_str(), Some(content.as_str()))).collect();
    let commit = world.push("main", &files, "Many").await;
    let asked: Vec<PathQuery> = (0..250).map(|number| query(&format!("f/{number:03}"), number % 2 == 0)).collect();
    let before = world.gitlab.calls();
    let found = world.gitlab.existing_paths(&world.project, &commit, &asked).await.unwrap();
    assert_eq!(world.gitlab.calls() - before, 3);
    let expected: BTreeMap<String, ExistingFile> = contents
        .iter()
        .enumerate()
        .map(|(number, (path, content))| {
            let sha256 = if number % 2 == 0 { sha256(content) } else { None };
            (path.clone(), ExistingFile { blob_id: world.blob_id(content), sha256 })
        })
        .collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn the_tree_is_read_at_the_commit_and_not_at_the_head() {
    let world = World::new().await;
    let old = world.push("main", &[("a", Some("1")), ("d/e", Some("x"))], "One").await;
    world.push("main", &[("a", Some("2")), ("b", Some("new"))], "Two").await;
    let asked = [query("a", true), query("a", false), query("b", true), query("d", true)];
    let found = world.gitlab.existing_paths(&world.project, &old, &asked).await.unwrap();
    // A folder is no file, and one path asked twice is one path.
    let a = ExistingFile { blob_id: world.blob_id("1"), sha256: sha256("1") };
    assert_eq!(found, BTreeMap::from([("a".to_owned(), a)]));
    assert!(world.gitlab.existing_paths(&world.project, &old, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_content_that_graphql_cannot_carry_is_hashed_from_its_bytes() {
    let world = World::new().await;
    let commit = world.push("main", &[("a", Some("exact"))], "One").await;
    let mangled = format!(
        r#"{{"data":{{"project":{{"repository":{{"blobs":{{"nodes":[{{"path":"a","oid":"{}"}}]}},"hashed":{{"nodes":[{{"path":"a","rawBlob":"exac�"}}]}}}}}}}}}}"#,
        world.blob_id("exact")
    );
    world.standin.inject(Fault::new("POST", "/api/graphql", FaultEffect::json(200, &mangled)));
    let found = world.gitlab.existing_paths(&world.project, &commit, &[query("a", true)]).await.unwrap();
    assert_eq!(found["a"].sha256, sha256("exact"));
}

#[tokio::test]
async fn contents_too_large_to_take_in_are_streamed() {
    let world = World::new().await;
    let large = "0123456789abcdef".repeat(600_000);
    let commit = world.push("main", &[("large", Some(&large)), ("small", Some("s"))], "One").await;
    let asked = [query("large", true), query("small", true)];
    let found = world.gitlab.existing_paths(&world.project, &commit, &asked).await.unwrap();
    assert_eq!(found["large"], ExistingFile { blob_id: world.blob_id(&large), sha256: sha256(&large) });
    assert_eq!(found["small"].sha256, sha256("s"));
}

#[tokio::test]
async fn a_project_that_graphql_does_not_show_is_not_an_empty_one() {
    let mut world = World::new().await;
    let head = world.head().await;
    world.project.path = "acme/renamed".to_owned();
    world.project.id = Some(42);
    let answer = world.gitlab.existing_paths(&world.project, &head, &[query("a", false)]).await;
    assert!(matches!(answer, Err(ForgeError::NotFound { .. })), "{answer:?}");
}
