//! Brings a batch towards its end: observe, decide, act, until there is nothing to do but wait.
//!
//! The caller's reason (an event, a sweep, an operator) changes nothing: state comes from the database, the
//! forge and Git, never from a message.

use std::time::{Duration, Instant};

use shared::StoreError;
use shared::decide::render::expected_blobs;
use shared::decide::settlement::{Asked, MERGED_OTHER_CONTENT, Next, OnTarget, Pipeline, Stuck, Theirs, decide};
use shared::ids::{BatchId, Principal};
use shared::read::round::{self, Round};
use shared::state::BatchStatus;
use shared::store::Store;
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::block::Block;
use shared::transactions::command::{Command, REASON_MAX};
use shared::transactions::deliveries::clip;
use shared::transactions::fail::Fail;
use shared::transactions::note_progress::NoteProgress;
use shared::transactions::pause::{Pause, Rounds};
use shared::transactions::rearm::{Anew, Rearm};
use shared::transactions::reconcile_late_merge::{ReconcileLateMerge, ReconcileLateMergeOutcome};
use shared::transactions::succeed::Succeed;

use crate::forge::{Carried, Containment, Forge, ForgeError, MrFacts, MrState, PipelineState};
use crate::outbound::Outbound;
use crate::relay::{Relay, RelayReport, begin_fail, project_of, signature};

/// Steps in one call: begin to fail, withdraw, fail, and a few lost races between them.
const STEPS_MAX: u32 = 8;
/// How long a caller with one batch at hand waits for an effect that is due again soon.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Where a batch stands after a call.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    Succeeded,
    Failed,
    Blocked,
    /// It had ended before.
    Ended,
    Waiting,
    /// The forge could not be asked: try again.
    Unreachable,
    UnknownBatch,
}

/// Settles one batch as far as the world allows it now. An effect that is due again within `patience` is waited for.
///
/// # Errors
/// Only where the database could not be asked.
pub async fn settle<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    batch: BatchId,
    patience: Duration,
    deadline: Instant,
) -> Result<Progress, StoreError> {
    for _ in 0..STEPS_MAX {
        if Instant::now() >= deadline {
            break;
        }
        let Some(round) = round::round(&relay.store, batch).await? else { return Ok(Progress::UnknownBatch) };
        let observed = observe(&relay.forge, &round).await;
        let (next, merge_sha) = decide_fully(relay, &round, &observed).await?;
        let flipped = match act(relay, &round, &observed, next, merge_sha).await? {
            Step::Ended(progress) => return Ok(progress),
            Step::Wait => {
                let done = wait(relay, &round, &observed, patience, deadline).await?;
                // A withdrawal has just been performed: what it left decides how the failing ends.
                if round.is_failing() && done.delivered > 0 {
                    continue;
                }
                return Ok(if observed.theirs == Theirs::Unreachable { Progress::Unreachable } else { Progress::Waiting });
            }
            Step::Flipped(progress) => progress,
        };
        relay.drive_batch(batch, patience, deadline).await?;
        if let Some(progress) = flipped {
            return Ok(progress);
        }
    }
    Ok(Progress::Waiting)
}

/// The merge request as the decision reads it, with the facts behind it.
struct Observed {
    theirs: Theirs,
    facts: Option<MrFacts>,
}

enum Step {
    Wait,
    Ended(Progress),
    /// Effects are to be performed; with a progress the batch is settled, without one it goes on.
    Flipped(Option<Progress>),
}

async fn observe<F: Forge>(forge: &F, round: &Round) -> Observed {
    match forge.observe(&project_of(round), &round.branch(), round.mr_iid).await {
        Ok(facts) => Observed { theirs: facts.as_ref().map_or(Theirs::None, |facts| theirs(round, facts)), facts },
        Err(error) => {
            report(&error, round);
            Observed { theirs: Theirs::Unreachable, facts: None }
        }
    }
}

fn report(error: &ForgeError, round: &Round) {
    if error.is_transient() {
        tracing::warn!(event = "forge_unreachable", batch = %round.id, %error);
    } else {
        tracing::error!(event = "alarm", alarm = "forge_refused", batch = %round.id, %error);
    }
}

fn theirs(round: &Round, facts: &MrFacts) -> Theirs {
    match facts.state {
        MrState::Opened => Theirs::Opened {
            foreign_head: matches!((&round.head_sha, &facts.head_sha), (Some(ours), Some(head)) if ours != head),
            pipeline: match facts.pipeline {
                PipelineState::Failed => Pipeline::Failed,
                PipelineState::Canceled => Pipeline::Canceled,
                PipelineState::Skipped => Pipeline::Skipped,
                PipelineState::Absent | PipelineState::Underway | PipelineState::Passed | PipelineState::Manual => Pipeline::Open,
            },
            stuck: match facts.mergeability {
                crate::forge::Mergeability::Conflict => Some(Stuck::Conflict),
                crate::forge::Mergeability::NeedsRebase => Some(Stuck::NeedsRebase),
                _ => None,
            },
        },
        MrState::Locked => Theirs::Locked,
        MrState::Merged => Theirs::Merged,
        MrState::Closed if facts.closed_by_us => Theirs::ClosedByUs,
        MrState::Closed => Theirs::ClosedByPerson,
        MrState::Unknown => Theirs::Unreachable,
    }
}

/// What forge and Git say of a batch, for a person who decides against them.
#[derive(Debug, Clone)]
pub struct Look {
    pub theirs: Theirs,
    pub on_target: OnTarget,
    /// The commit that brought it to the target branch, where it is there with our content.
    pub commit: Option<String>,
    pub url: Option<String>,
}

/// Looks, and changes nothing.
///
/// # Errors
/// Only where the database could not be asked.
pub async fn look<F: Forge, E: Outbound>(relay: &Relay<F, E>, round: &Round) -> Result<Look, StoreError> {
    let observed = observe(&relay.forge, round).await;
    let (on_target, commit) = ask_target(relay, round, observed.facts.as_ref()).await?;
    Ok(Look { theirs: observed.theirs, on_target, commit, url: observed.facts.map(|facts| facts.url) })
}

/// Decides, asking Git and the target's pipeline where the decision depends on them.
async fn decide_fully<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    round: &Round,
    observed: &Observed,
) -> Result<(Next, Option<String>), StoreError> {
    let mut asked = Asked::default();
    let mut merge_sha = None;
    loop {
        match decide(&round.ours(), &observed.theirs, asked) {
            Next::AskTarget if asked.on_target.is_none() => {
                let (answer, commit) = ask_target(relay, round, observed.facts.as_ref()).await?;
                asked.on_target = Some(answer);
                merge_sha = commit;
            }
            Next::AskTargetPipeline if asked.target_red.is_none() => match &round.start_sha {
                // Nothing was rendered, so nothing of ours can have turned the pipeline red.
                None => asked.target_red = Some(true),
                Some(start) => match relay.forge.target_red(&project_of(round), start).await {
                    Ok(is_red) => asked.target_red = Some(is_red),
                    Err(error) => {
                        report(&error, round);
                        return Ok((Next::Wait, None));
                    }
                },
            },
            Next::AskTarget | Next::AskTargetPipeline => return Ok((Next::Wait, None)),
            next => return Ok((next, merge_sha)),
        }
    }
}

async fn ask_target<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    round: &Round,
    facts: Option<&MrFacts>,
) -> Result<(OnTarget, Option<String>), StoreError> {
    // Without a start no commit was ever made.
    let Some(carried) = carried(&relay.store, round, facts).await? else { return Ok((OnTarget::No, None)) };
    Ok(match relay.forge.target_contains(&project_of(round), &carried).await {
        Ok(Containment::Yes { commit }) => (OnTarget::Yes, Some(commit)),
        Ok(Containment::No) => (OnTarget::No, None),
        Ok(Containment::OtherContent { commit, paths }) => {
            tracing::error!(event = "alarm", alarm = "merged_other_content", batch = %round.id, commit, paths = ?paths);
            (OnTarget::OtherContent, None)
        }
        Err(error) => {
            report(&error, round);
            (OnTarget::Unknown, None)
        }
    })
}

/// What the batch would have left on the target branch; `None` where it was never rendered.
pub async fn carried(store: &Store, round: &Round, facts: Option<&MrFacts>) -> Result<Option<Carried>, StoreError> {
    let Some(start_sha) = round.start_sha.clone() else { return Ok(None) };
    let members =
        if round.status.is_active() { round::contents(store, round.id).await? } else { round::kept_contents(store, round.id).await? };
    let from_forge = facts.into_iter().flat_map(|facts| [facts.merge_commit_sha.clone(), facts.squash_commit_sha.clone()]).flatten();
    Ok(Some(Carried {
        token_hex: round.token.hex(),
        start_sha,
        commits: round.head_sha.clone().into_iter().chain(from_forge).collect(),
        blobs: expected_blobs(members.iter().flat_map(|(_, files)| files)),
    }))
}

async fn act<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    round: &Round,
    observed: &Observed,
    next: Next,
    merge_sha: Option<String>,
) -> Result<Step, StoreError> {
    let store = &relay.store;
    let message = |code: &str| clip(&explain(code, observed.facts.as_ref()));
    let (outcome, progress) = match next {
        Next::Wait | Next::AskTarget | Next::AskTargetPipeline => return Ok(Step::Wait),
        Next::Ended => return Ok(Step::Ended(Progress::Ended)),
        Next::LateMerge => {
            reconcile(store, round, merge_sha.unwrap_or_default()).await?;
            return Ok(Step::Flipped(Some(Progress::Ended)));
        }
        Next::Succeed => {
            (store.run(&Succeed { batch: round.id, by: signature("settlement"), merge_sha, code: None }).await?, Some(Progress::Succeeded))
        }
        Next::Fail => (store.run(&Fail { batch: round.id, by: signature("settlement") }).await?, Some(Progress::Failed)),
        Next::Block { code: MERGED_OTHER_CONTENT } => {
            pause(store, round, observed.facts.as_ref()).await?;
            let code = MERGED_OTHER_CONTENT;
            (store.run(&Block { batch: round.id, code: code.into(), message: message(code) }).await?, Some(Progress::Blocked))
        }
        Next::Block { code } => {
            (store.run(&Block { batch: round.id, code: code.into(), message: message(code) }).await?, Some(Progress::Blocked))
        }
        Next::BeginFail { cause, code } => (store.run(&begin_fail(round.id, cause, code, message(code))).await?, None),
    };
    Ok(match outcome {
        SettleOutcome::Settled => Step::Flipped(progress),
        // Somebody was first: look again at what there is now.
        SettleOutcome::Preempted { .. } => Step::Flipped(None),
        SettleOutcome::UnknownBatch => Step::Ended(Progress::UnknownBatch),
    })
}

/// What was merged is not what was rendered: until somebody has looked into it, nothing more is landed there.
async fn pause(store: &Store, round: &Round, facts: Option<&MrFacts>) -> Result<(), StoreError> {
    let reason =
        format!("batch {} was merged with other content than was rendered: {}", round.id, facts.map_or("", |facts| facts.url.as_str()));
    tracing::error!(event = "alarm", alarm = "merged_other_content", batch = %round.id, reason);
    let command = Command::new("pause", Principal::muster(), reason.chars().take(REASON_MAX).collect::<String>(), false);
    let unit = Pause { partition: round.partition.clone(), rounds: Rounds::Paused { until: None }, command };
    let paused = store.run(&unit).await?;
    tracing::info!(event = "partition_paused", partition = %round.partition, outcome = ?paused);
    Ok(())
}

/// Brings the members of a failed batch that is on the target branch to MERGED; alarmed, for somebody merged it
/// after we had given it up.
pub async fn reconcile(store: &Store, round: &Round, merge_sha: String) -> Result<(), StoreError> {
    tracing::error!(event = "alarm", alarm = "late_merge", batch = %round.id, merge_sha);
    let unit = ReconcileLateMerge { batch: round.id, by: signature("late_merge"), merge_sha };
    match store.run(&unit).await? {
        ReconcileLateMergeOutcome::Reconciled { .. } | ReconcileLateMergeOutcome::Known => Ok(()),
        other => {
            tracing::warn!(event = "late_merge_not_reconciled", batch = %round.id, outcome = ?other);
            Ok(())
        }
    }
}

/// Nothing to settle: note what is new, arm again what was disarmed, and perform what is due.
async fn wait<F: Forge, E: Outbound>(
    relay: &Relay<F, E>,
    round: &Round,
    observed: &Observed,
    patience: Duration,
    deadline: Instant,
) -> Result<RelayReport, StoreError> {
    if let Some(facts) = &observed.facts
        && round.may_proceed()
    {
        let _ = relay.store.run(&NoteProgress { batch: round.id, step: step_of(facts) }).await?;
    }
    // What was performed once and does not hold any more is performed anew; one that is pending is left to itself.
    if let Some(facts) = observed.facts.as_ref().filter(|facts| facts.state == MrState::Opened)
        && let Some(effect) = anew(round, facts)
    {
        let _ = relay.store.run(&Rearm { batch: round.id, effect }).await?;
    }
    relay.drive_batch(round.id, patience, deadline).await
}

/// What an open merge request lacks, by the state of its batch.
fn anew(round: &Round, facts: &MrFacts) -> Option<Anew> {
    match round.status {
        _ if round.is_failing() => Some(Anew::Withdraw { iid: facts.iid }),
        BatchStatus::Running if !facts.armed && round.mr_iid.is_some() => Some(Anew::Arm),
        BatchStatus::Blocked if facts.armed => Some(Anew::Disarm),
        BatchStatus::Running | BatchStatus::Blocked | BatchStatus::Succeeded | BatchStatus::Failed => None,
    }
}

fn step_of(facts: &MrFacts) -> &'static str {
    match (facts.state, facts.pipeline) {
        (MrState::Locked, _) => "merging",
        (MrState::Merged, _) => "merged",
        (MrState::Closed, _) => "closed",
        (_, PipelineState::Absent) => "pipeline_absent",
        (_, PipelineState::Underway) => "pipeline_underway",
        (_, PipelineState::Passed) => "pipeline_passed",
        (_, PipelineState::Failed) => "pipeline_failed",
        (_, PipelineState::Canceled) => "pipeline_canceled",
        (_, PipelineState::Skipped) => "pipeline_skipped",
        (_, PipelineState::Manual) => "pipeline_manual",
    }
}

/// What a person reads about a verdict, with the evidence at hand.
fn explain(code: &str, facts: Option<&MrFacts>) -> String {
    let Some(facts) = facts else { return format!("{code}: the batch has no merge request") };
    let mut text = format!("{code}: {}", facts.url);
    if let Some(url) = &facts.pipeline_url {
        text += &format!(", pipeline {url}");
    }
    if let Some(who) = &facts.closed_by {
        text += &format!(", closed by {who}");
    }
    if let Some(error) = &facts.merge_error {
        text += &format!(", {error}");
    }
    text
}
