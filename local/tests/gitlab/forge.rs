//! A stand-in of its own for each test, and a client that shows status and body.

use std::time::Duration;

use local::gitlab::{Options, PipelinePlan, StandIn};
use reqwest::Method;
use serde_json::{Value, json};

pub const TOKEN: &str = "glpat-test";

pub struct Forge {
    pub standin: StandIn,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
}

#[derive(Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Forge {
    pub async fn with(pipeline: PipelinePlan) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            repository: folder.path().join("access.git"),
            project: "acme/access".to_owned(),
            project_id: 7,
            target_branch: "main".to_owned(),
            token: TOKEN.to_owned(),
            webhook: None,
            pipeline,
            bind: ([127, 0, 0, 1], 0).into(),
        };
        let standin = StandIn::start(options).await.unwrap();
        standin.set_knobs(|knobs| {
            knobs.check_step_ms = 5;
            knobs.pipeline_appears_ms = 5;
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { standin, client, _folder: folder }
    }

    /// A forge whose pipelines pass at once.
    pub async fn passing() -> Self {
        Self::with(PipelinePlan::pass(Duration::from_millis(5))).await
    }

    pub async fn try_call(&self, method: Method, path: &str, body: Option<Value>) -> reqwest::Result<Answer> {
        let base = if path.starts_with("/_standin") || path == "/api/graphql" { "" } else { "/api/v4" };
        let url = format!("{}{base}{}", self.standin.url(), path.replace(":id", "acme%2Faccess"));
        let mut request = self.client.request(method, url).header("PRIVATE-TOKEN", TOKEN);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let text = answer.text().await?;
        Ok(Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.try_call(Method::GET, path, None).await.unwrap()
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.try_call(Method::POST, path, Some(body)).await.unwrap()
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.try_call(Method::PUT, path, Some(body)).await.unwrap()
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.try_call(Method::DELETE, path, None).await.unwrap()
    }

    pub fn head(&self, branch: &str) -> String {
        self.standin.git(&["rev-parse", &format!("refs/heads/{branch}")]).unwrap()
    }

    /// Commits one new file on a new branch from the target's head; answers the commit.
    pub async fn commit(&self, branch: &str, path: &str, content: &str) -> String {
        let body = json!({
            "branch": branch, "start_sha": self.head("main"), "commit_message": format!("Add {path}\n\nMuster-Batch: {branch}"),
            "actions": [{ "action": "create", "file_path": path, "content": content }],
        });
        let answer = self.post("/projects/:id/repository/commits", body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.body["id"].as_str().unwrap().to_owned()
    }

    /// Opens a merge request for a branch and reads it until its check has ended; answers its iid.
    pub async fn open(&self, branch: &str) -> u64 {
        let body = json!({ "source_branch": branch, "target_branch": "main", "title": branch });
        let answer = self.post("/projects/:id/merge_requests", body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let iid = answer.body["iid"].as_u64().unwrap();
        self.wait(iid, |found| !["preparing", "unchecked", "checking"].contains(&status(found))).await;
        iid
    }

    /// Commit, merge request and a wait for the status given.
    pub async fn ready(&self, branch: &str, wanted: &str) -> (u64, String) {
        let sha = self.commit(branch, &format!("grants/{branch}.json"), "{}\n").await;
        let iid = self.open(branch).await;
        self.wait(iid, |found| status(found) == wanted).await;
        (iid, sha)
    }

    pub async fn merge_request(&self, iid: u64) -> Value {
        let answer = self.get(&format!("/projects/:id/merge_requests/{iid}")).await;
        assert_eq!(answer.status, 200);
        answer.body
    }

    /// Reads a merge request until it is as wanted; fails after two seconds, showing it.
    pub async fn wait(&self, iid: u64, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..400 {
            last = self.merge_request(iid).await;
            if wanted(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the merge request did not get there: {last:#}");
    }

    pub async fn merge(&self, iid: u64, body: Value) -> Answer {
        self.put(&format!("/projects/:id/merge_requests/{iid}/merge"), body).await
    }

    pub async fn close(&self, iid: u64) -> Answer {
        self.put(&format!("/projects/:id/merge_requests/{iid}"), json!({ "state_event": "close" })).await
    }

    /// Whether a commit is on the target branch.
    pub fn on_target(&self, sha: &str) -> bool {
        self.standin.git(&["merge-base", "--is-ancestor", sha, "refs/heads/main"]).is_ok()
    }
}

pub fn status(found: &Value) -> &str {
    found["detailed_merge_status"].as_str().unwrap()
}

pub fn state(found: &Value) -> &str {
    found["state"].as_str().unwrap()
}

/// What `{"message": …}` says.
pub fn message(answer: &Answer) -> (u16, Value) {
    (answer.status, answer.body["message"].clone())
}
