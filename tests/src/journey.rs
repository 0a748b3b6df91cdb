//! A database, a forge and the real handlers, in one process.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use adapters::forge::gitlab::{GitLab, GitLabOptions};
use adapters::outbound::Outbound;
use adapters::relay::Relay;
use adapters::settlement::Progress;
use local::gitlab::{Options, PipelinePlan, StandIn};
use serde_json::{Value, json};
use shared::ids::{BatchId, OperationId, PartitionKey};
use shared::{Store, StoreOptions};

use crate::World;
use crate::deadline::until;

/// What the stand-in takes for a token.
pub const TOKEN: &str = "journey-token";
const PROJECT_ID: u64 = 7;
/// A journey's single step ends well within this, however loaded the machine is.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// Keeps what was published.
#[derive(Default)]
pub struct Published(Mutex<Vec<(String, Value)>>, AtomicBool);

impl Published {
    /// Types of the events, sorted.
    pub fn types(&self) -> Vec<String> {
        let events = self.0.lock().expect("no test panics while it holds this");
        let mut types: Vec<String> = events.iter().map(|(_, body)| body["type"].as_str().unwrap_or_default().to_owned()).collect();
        types.sort();
        types
    }

    /// From now on nothing is taken, or everything again.
    pub fn refuse(&self, refuses: bool) {
        self.1.store(refuses, Ordering::SeqCst);
    }

    pub fn bodies(&self) -> Vec<Value> {
        self.0.lock().expect("no test panics while it holds this").iter().map(|(_, body)| body.clone()).collect()
    }
}

impl Outbound for Published {
    /// Kept too: a test runs the round itself.
    async fn start_round(&self, partition: &PartitionKey) -> Result<(), String> {
        let mut kept = self.0.lock().expect("no test panics while it holds this");
        kept.push((String::new(), json!({ "type": "start_round", "partition": partition })));
        Ok(())
    }

    async fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    async fn publish(&self, events: &[(String, String)]) -> Result<Vec<Result<(), String>>, String> {
        if self.1.load(Ordering::SeqCst) {
            return Err("the queue is down".into());
        }
        let mut kept = self.0.lock().expect("no test panics while it holds this");
        kept.extend(events.iter().map(|(id, body)| (id.clone(), serde_json::from_str(body).expect("an event is JSON"))));
        Ok(vec![Ok(()); events.len()])
    }
}

/// The world with a forge: partition `default` lands on `main` of `acme/access`.
pub struct Journey {
    pub world: World,
    pub forge: StandIn,
    pub relay: Relay<GitLab, Published>,
    _repository: tempfile::TempDir,
}

impl Journey {
    pub async fn new() -> Self {
        Self::with_world(World::new().await).await
    }

    pub async fn with_world(world: World) -> Self {
        world.sql("UPDATE merge_partition SET project_id = ?", (PROJECT_ID,)).await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = Options {
            repository: folder.path().join("access.git"),
            project: "acme/access".into(),
            project_id: PROJECT_ID,
            target_branch: "main".into(),
            token: TOKEN.into(),
            webhook: None,
            pipeline: PipelinePlan::pass(Duration::from_millis(50)),
            bind: "127.0.0.1:0".parse().expect("an address"),
        };
        let forge = StandIn::start(options).await.expect("the stand-in starts");
        let relay = relay(&world, &forge, |_| {});
        Self { world, forge, relay, _repository: folder }
    }

    /// A second runner on the same world, such as one whose clock is elsewhere.
    pub fn runner(&self, change: impl FnOnce(&mut StoreOptions)) -> Relay<GitLab, Published> {
        relay(&self.world, &self.forge, change)
    }

    /// The same, with a clock so many seconds from now.
    pub async fn runner_in(&self, seconds: i64) -> Relay<GitLab, Published> {
        let store: Store = self.world.store_in(seconds).await;
        Relay { store, ..relay(&self.world, &self.forge, |_| {}) }
    }

    /// Invokes claim-round and answers its one round.
    pub async fn round(&self) -> Value {
        let answer = claim_round::handle(&self.relay, json!({}), stop_at()).await.expect("a round always answers");
        let answer = serde_json::to_value(answer).expect("an answer is JSON");
        answer["rounds"][0].clone()
    }

    /// Runs a round that must claim, and answers its batch.
    pub async fn claimed(&self) -> BatchId {
        let round = self.round().await;
        assert_eq!(round["outcome"], "claimed", "{round}");
        serde_json::from_value(round["batch_id"].clone()).expect("a batch id")
    }

    /// Settles a batch once.
    pub async fn settle(&self, batch: BatchId) -> Progress {
        adapters::settlement::settle(&self.relay, batch, adapters::settlement::PATIENCE, stop_at()).await.expect("the database answers")
    }

    /// Settles a batch until it comes to this.
    pub async fn settle_until(&self, batch: BatchId, wanted: Progress) {
        until(&format!("{wanted:?}"), async || {
            let progress = self.settle(batch).await;
            assert!(progress == wanted || progress == Progress::Waiting, "the batch came to {progress:?} instead of {wanted:?}");
            (progress == wanted).then_some(())
        })
        .await;
    }

    /// One sweep's report.
    pub async fn sweep(&self) -> Value {
        let report = sweep::handle(&self.relay, json!({}), stop_at()).await.expect("a sweep always answers");
        serde_json::to_value(report).expect("a report is JSON")
    }

    pub async fn status_of(&self, operation: &OperationId) -> String {
        let code: i64 = self.world.scalar("SELECT status FROM operation WHERE operation_id = ?", (operation,)).await;
        shared::state::OperationStatus::from_code(code).expect("a known state").name().to_owned()
    }

    pub async fn binding_of(&self, subject: &str, target: &str) -> String {
        let code: i64 = self.world.scalar("SELECT status FROM binding WHERE subject_id = ? AND target_key = ?", (subject, target)).await;
        shared::state::BindingStatus::from_code(code).expect("a known state").name().to_owned()
    }

    /// Content of a file on the target branch; `None` where it is absent.
    pub fn file_on_main(&self, path: &str) -> Option<String> {
        self.forge.git(&["cat-file", "blob", &format!("main:{path}")]).ok()
    }
}

pub fn stop_at() -> Instant {
    Instant::now() + STEP_LIMIT
}

fn relay(world: &World, forge: &StandIn, change: impl FnOnce(&mut StoreOptions)) -> Relay<GitLab, Published> {
    let options = GitLabOptions {
        base_url: forge.url(),
        token: TOKEN.into(),
        connect_timeout: Duration::from_secs(3),
        call_timeout: Duration::from_secs(15),
    };
    let gitlab = GitLab::new(options).expect("the stand-in's address is well-formed");
    Relay { store: world.store_with(change), forge: gitlab, outbound: Published::default() }
}
