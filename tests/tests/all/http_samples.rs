//! The sample events of the HTTP API are answered as their names promise.

use muster_tests::World;
use serde_json::Value;

use crate::http::Api;

fn sample(name: &str) -> Value {
    let path = local::places::checkout().join("events").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{name}: {why}"))
}

#[tokio::test]
async fn every_sample_for_the_api_is_answered() {
    let world = World::new().await;
    let api = Api::of(&world);
    // As API Gateway would have let them in; the samples with an authorizer of their own keep it.
    let dev = serde_json::json!({ "jwt": { "claims": { "sub": "dev" } } });
    for (name, status) in [
        ("http-post-request.json", 201),
        ("http-post-request-jwt.json", 201),
        ("http-post-request-iam.json", 201),
        ("http-post-request-base64.json", 201),
        ("http-post-request-revoke.json", 409),
        ("http-post-request-invalid.json", 400),
        ("http-list-requests.json", 200),
        ("http-get-request.json", 404),
        ("http-delete-request.json", 404),
        ("http-list-batches.json", 200),
        ("http-get-batch.json", 404),
        ("http-get-status.json", 200),
    ] {
        let mut event = sample(name);
        if event["requestContext"]["authorizer"].is_null() {
            event["requestContext"]["authorizer"] = dev.clone();
        }
        let answer = api.send(&event).await;
        assert_eq!(answer.status, status, "{name}: {answer:?}");
    }
    world.assert_invariants().await;
}
