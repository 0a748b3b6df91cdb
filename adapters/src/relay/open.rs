//! Opens the merge request of a batch: render, commit, open, record.
//!
//! Each step is a pure function of what is stored, or idempotent on the forge: a retry from the top finds
//! what the attempt before it did.

use std::collections::BTreeMap;

use shared::decide::render::{BaseFile, Rendered, RenderedFile, render};
use shared::ids::{ClaimToken, OperationId};
use shared::read::round::{self, Round};
use shared::request::{Base, FileChange};
use shared::transactions::block::Block;
use shared::transactions::deliveries::{Delivery, LeaseToken, clip};
use shared::transactions::record_merge_request::{RecordMergeRequest, RecordMergeRequestOutcome};
use shared::transactions::record_render::{RecordRender, RecordRenderOutcome};
use shared::transactions::succeed::{ALREADY_APPLIED, Succeed};

use super::{EffectError, Effected, Performed, Relay, project_of, signature};
use crate::forge::{CommitAnswer, CommitPlan, FileAction, Forge, ForgeError, MergeRequestPlan, PathQuery, ProjectRef};
use crate::outbound::Outbound;

/// Requests named in a description; the rest is counted.
const NAMED_REQUESTS: usize = 100;

/// The trailer by which a commit on the target branch is known to be a batch's.
pub fn trailer(token: ClaimToken) -> String {
    format!("Muster-Batch: {}", token.hex())
}

/// How rendering came out.
enum Start {
    Rendered(String, Members, Rendered),
    Preempted,
    /// Nobody was left, or the batch is gone.
    Ended,
}

type Members = Vec<(OperationId, Vec<FileChange>)>;

impl<F: Forge, E: Outbound> Relay<F, E> {
    pub(super) async fn open(&self, round: Round, delivery: &Delivery, token: LeaseToken) -> Effected {
        if !round.may_proceed() {
            return Ok(Performed::Done);
        }
        let project = project_of(&round);
        let (start_sha, members, rendered) = match self.rendered(&round, &project).await? {
            Start::Rendered(start_sha, members, rendered) => (start_sha, members, rendered),
            Start::Ended => return Ok(Performed::Done),
            // Whoever was first may have died since: this row stays until a merge request is recorded.
            Start::Preempted => return Ok(Performed::Later { delay_s: None, why: "another runner rendered it first".into() }),
        };
        if rendered.files.is_empty() {
            let unit = Succeed { batch: round.id, by: signature("render"), merge_sha: None, code: Some(ALREADY_APPLIED) };
            let _ = self.store.run(&unit).await?;
            return Ok(Performed::Done);
        }
        let plan = commit_plan(&round, start_sha, &members, rendered.files);
        let head_sha = match self.forge.ensure_commit(&project, &plan).await? {
            CommitAnswer::Committed { head_sha } => head_sha,
            CommitAnswer::Foreign { head_sha } => {
                let message = clip(&format!("the branch {} exists with a head that is not ours: {head_sha}", plan.branch));
                let held = self.store.run(&Block { batch: round.id, code: "foreign_head".into(), message }).await?;
                tracing::error!(event = "alarm", alarm = "foreign_head", batch = %round.id, head_sha, held = held.name());
                return Ok(Performed::Done);
            }
            CommitAnswer::Refused { reason } => {
                self.blame_content(&round, "commit_refused", &format!("the forge refused the commit: {reason}")).await?;
                return Ok(Performed::Done);
            }
        };
        // A runner that was frozen since it read the batch must not open anything for a settled one.
        if !round::round(&self.store, round.id).await?.is_some_and(|now| now.may_proceed()) {
            return Ok(Performed::Done);
        }
        let opened = self.forge.ensure_merge_request(&project, &merge_request_plan(&round, &head_sha, &members)).await?;
        let record =
            RecordMergeRequest { batch: round.id, iid: opened.iid, url: opened.url, head_sha, delivery: (delivery.key.clone(), token) };
        match self.store.run(&record).await? {
            RecordMergeRequestOutcome::Recorded | RecordMergeRequestOutcome::AlreadyRecorded | RecordMergeRequestOutcome::Preempted => {
                Ok(Performed::Recorded)
            }
            RecordMergeRequestOutcome::UnknownBatch => Ok(Performed::GiveUp { why: format!("the batch {} is gone", round.id) }),
        }
    }

    /// The round on the commit it starts from, which is stored first.
    async fn rendered(&self, round: &Round, project: &ProjectRef) -> Result<Start, EffectError> {
        let mut members = round::contents(&self.store, round.id).await?;
        let (start_sha, base) = match &round.start_sha {
            Some(start_sha) => (start_sha.clone(), self.base(project, start_sha, &members).await?),
            None => {
                let head = self.forge.target_head(project).await?;
                let base = self.base(project, &head, &members).await?;
                let expelled = render(&members, &base, &round.allowed_prefixes).expelled;
                let unit = RecordRender { batch: round.id, by: signature("render"), start_sha: head.clone(), expelled };
                match self.store.run(&unit).await? {
                    RecordRenderOutcome::Recorded { .. } => {}
                    RecordRenderOutcome::Preempted => return Ok(Start::Preempted),
                    RecordRenderOutcome::Emptied | RecordRenderOutcome::UnknownBatch => return Ok(Start::Ended),
                }
                members.retain(|(operation, _)| unit.expelled.iter().all(|gone| gone.operation != *operation));
                (head, base)
            }
        };
        // What is left was rendered when the start was stored; prefixes that changed since do not matter to it.
        let rendered = render(&members, &base, &[String::new()]);
        Ok(Start::Rendered(start_sha, members, rendered))
    }

    async fn base(&self, project: &ProjectRef, commit: &str, members: &Members) -> Result<BTreeMap<String, BaseFile>, ForgeError> {
        let queries: Vec<PathQuery> = members
            .iter()
            .flat_map(|(_, files)| files)
            .map(|file| PathQuery { path: file.path.clone(), hash: matches!(file.base, Some(Base::Sha256(_))) })
            .collect();
        if queries.is_empty() {
            return Ok(BTreeMap::new());
        }
        let existing = self.forge.existing_paths(project, commit, &queries).await?;
        Ok(existing.into_iter().map(|(path, file)| (path, BaseFile { blob_id: file.blob_id, sha256: file.sha256 })).collect())
    }
}

/// No text of a user enters the message: ids of ours, counts, and the trailer.
fn commit_plan(round: &Round, start_sha: String, members: &Members, files: Vec<RenderedFile>) -> CommitPlan {
    let mut message = format!("{}\n\n", title(round, members));
    for (operation, _) in members {
        message += &format!("Request {operation}\n");
    }
    message += &format!("\n{}\n", trailer(round.token));
    let actions = files.into_iter().map(action).collect();
    CommitPlan { branch: round.branch(), start_sha, message, token_hex: round.token.hex(), actions }
}

fn action(file: RenderedFile) -> FileAction {
    match (file.content, file.exists) {
        (Some(content), false) => FileAction::Create { path: file.path, content },
        (Some(content), true) => FileAction::Update { path: file.path, content },
        (None, _) => FileAction::Delete { path: file.path },
    }
}

fn merge_request_plan(round: &Round, head_sha: &str, members: &Members) -> MergeRequestPlan {
    let mut description =
        format!("Opened by Muster for batch {} of partition `{}`. Merged when its pipeline passes.\n\n", round.id, round.partition);
    for (operation, _) in members.iter().take(NAMED_REQUESTS) {
        description += &format!("- `{operation}`\n");
    }
    if members.len() > NAMED_REQUESTS {
        description += &format!("- and {} more\n", members.len() - NAMED_REQUESTS);
    }
    description += &format!("\n{}\n", trailer(round.token));
    MergeRequestPlan { branch: round.branch(), head_sha: head_sha.to_owned(), title: title(round, members), description }
}

fn title(round: &Round, members: &Members) -> String {
    match members.len() {
        1 => format!("Muster: 1 request for {}", round.partition),
        many => format!("Muster: {many} requests for {}", round.partition),
    }
}
