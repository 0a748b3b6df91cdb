//! Everything the stand-in remembers beside the repository.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    chaos::Chaos,
    faults::Fault,
    knobs::Knobs,
    merge_request::{MergeRequest, MrState},
    pipeline::{Pipeline, PipelinePlan},
    webhook::{Delivery, Outgoing, Webhook},
};

#[derive(Default)]
pub(crate) struct World {
    pub merge_requests: BTreeMap<u64, MergeRequest>,
    pub pipelines: BTreeMap<u64, Pipeline>,
    pub last_iid: u64,
    pub plan: PipelinePlan,
    pub webhook: Option<Webhook>,
    pub deliveries: Vec<Delivery>,
    pub faults: Vec<Fault>,
    pub knobs: Knobs,
    pub chaos: Chaos,
    /// A webhook that waits until another has overtaken it.
    pub held: Option<Outgoing>,
    /// Failed deliveries in a row.
    pub hook_failures: u32,
    /// How lists showed a merge request, and since when.
    pub listed: HashMap<u64, (Instant, Value)>,
    /// Method, path and status (0: the connection was cut) of each call so far.
    pub calls: Vec<(String, String, u16)>,
    /// When each branch was made, for the lag until it can be seen.
    pub born: HashMap<String, Instant>,
}

/// Ids of pipelines are those of the whole instance: they do not begin at 1 in a project.
const FIRST_PIPELINE: u64 = 1_001;

/// A merge request as tests and the demo look at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MrView {
    pub iid: u64,
    pub state: MrState,
    pub title: String,
    pub description: String,
    pub source_branch: String,
    pub target_branch: String,
    pub sha: String,
    pub merge_commit_sha: Option<String>,
    pub auto_merge: bool,
    pub detailed_merge_status: String,
    pub merge_error: Option<String>,
    pub closed_by: Option<String>,
    pub merged_by: Option<String>,
    pub pipeline: Option<PipelineView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PipelineView {
    pub id: u64,
    pub sha: String,
    pub status: String,
}

impl World {
    /// Changes the knobs that are given, leaves the others; `project` field by field.
    pub fn change_knobs(&mut self, changes: Map<String, Value>) -> anyhow::Result<()> {
        let mut all = json!(self.knobs);
        for (name, value) in changes {
            match (&mut all[&name], value) {
                (Value::Object(settings), Value::Object(changes)) => settings.extend(changes),
                (field, value) => *field = value,
            }
        }
        self.knobs = serde_json::from_value(all).context("these are no knobs")?;
        Ok(())
    }

    /// The newest pipeline of the present head.
    pub fn head_pipeline(&self, merge_request: &MergeRequest) -> Option<&Pipeline> {
        let ours = |pipeline: &&Pipeline| pipeline.is_for(merge_request.iid) && pipeline.sha == merge_request.head;
        self.pipelines.values().rev().find(ours)
    }

    pub fn next_pipeline_id(&self) -> u64 {
        self.pipelines.keys().next_back().map_or(FIRST_PIPELINE, |last| last + 1)
    }

    pub fn detailed_status(&self, merge_request: &MergeRequest) -> &'static str {
        merge_request.detailed_status(self.head_pipeline(merge_request), &self.knobs.project)
    }

    /// The open merge request of a source branch, other than `except`.
    pub fn open_for(&self, source: &str, target: &str, except: u64) -> Option<u64> {
        let same = |found: &&MergeRequest| {
            found.iid != except
                && found.source_branch == source
                && found.target_branch == target
                && matches!(found.state, MrState::Opened | MrState::Locked)
        };
        self.merge_requests.values().find(same).map(|found| found.iid)
    }

    pub fn view(&self, merge_request: &MergeRequest) -> MrView {
        let pipeline = self.head_pipeline(merge_request);
        MrView {
            iid: merge_request.iid,
            state: merge_request.state,
            title: merge_request.title.clone(),
            description: merge_request.description.clone(),
            source_branch: merge_request.source_branch.clone(),
            target_branch: merge_request.target_branch.clone(),
            sha: merge_request.head.clone(),
            merge_commit_sha: merge_request.merge_commit_sha.clone(),
            auto_merge: merge_request.auto_merge.is_some(),
            detailed_merge_status: self.detailed_status(merge_request).to_owned(),
            merge_error: merge_request.merge_error.clone(),
            closed_by: merge_request.closed.as_ref().map(|(_, who)| who.username.clone()),
            merged_by: merge_request.merged.as_ref().map(|(_, who)| who.username.clone()),
            pipeline: pipeline.map(|pipeline| PipelineView {
                id: pipeline.id,
                sha: pipeline.sha.clone(),
                status: pipeline.status.name().to_owned(),
            }),
        }
    }
}
