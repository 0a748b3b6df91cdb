//! Setting auto-merge, or merging, always for one commit.
//!
//! 200 does not mean merged, 405 does not mean impossible: the body, or a second read, decides.

use serde_json::json;

use super::GitLab;
use super::branches;
use super::reply::Reply;
use super::route::of_project;
use super::wire::MergeRequest;
use crate::forge::{ArmAnswer, ForgeError, Mergeability, MrFacts, MrState, PipelineState, ProjectRef};

pub(super) async fn arm_or_merge(
    gitlab: &GitLab,
    project: &ProjectRef,
    iid: u64,
    head_sha: &str,
    merge_message: &str,
) -> Result<ArmAnswer, ForgeError> {
    // Read first: a merge request that was pointed at another branch must not be merged with our rights.
    if let Some(answer) = settled(&gitlab.facts_of(project, iid).await?, project, head_sha) {
        return Ok(answer);
    }
    let body = json!({
        "sha": head_sha,
        "auto_merge": true,
        "merge_when_pipeline_succeeds": true, // What `auto_merge` was called before 17.11.
        "merge_commit_message": merge_message,
        "squash": false,
        "should_remove_source_branch": false,
    });
    let route = of_project(project, &format!("merge_requests/{iid}/merge"));
    let reply = gitlab.client.put("merge", &route, &body).await?;
    match reply.status {
        200..300 => match told_by(&reply) {
            Some(answer) => Ok(answer),
            None => read_again(gitlab, project, iid, head_sha, &reply).await,
        },
        404 => Err(branches::missing(&reply, project, &format!("merge request !{iid}"))),
        409 => conflicting(gitlab, project, iid, head_sha, &reply).await,
        405 | 406 | 422 => read_again(gitlab, project, iid, head_sha, &reply).await,
        _ => Err(reply.unexpected()),
    }
}

const UNCHECKED: &str = "the forge has not looked yet whether it can be merged";

/// The answer's own body, where it says more than that the call was accepted.
fn told_by(reply: &Reply) -> Option<ArmAnswer> {
    let found: MergeRequest = reply.parse().ok()?;
    match found.state() {
        MrState::Merged => Some(ArmAnswer::Merged),
        MrState::Opened if found.is_armed() => Some(ArmAnswer::Armed),
        _ => None,
    }
}

/// 409 has two meanings here: the head moved, or somebody holds the row for a moment.
async fn conflicting(gitlab: &GitLab, project: &ProjectRef, iid: u64, head_sha: &str, reply: &Reply) -> Result<ArmAnswer, ForgeError> {
    let text = reply.text();
    if text.contains("Resource lock") {
        return Err(ForgeError::Busy { detail: text });
    }
    if !text.contains("SHA does not match") {
        return read_again(gitlab, project, iid, head_sha, reply).await;
    }
    match named_sha(&text) {
        Some(named) if named != head_sha => Ok(ArmAnswer::ForeignHead { head_sha: named.to_owned() }),
        _ => read_again(gitlab, project, iid, head_sha, reply).await,
    }
}

/// "SHA does not match HEAD of source branch: <sha>"
fn named_sha(text: &str) -> Option<&str> {
    let last = text.rsplit(|character: char| !character.is_ascii_hexdigit()).find(|word| !word.is_empty())?;
    (last.len() >= 40).then_some(last)
}

async fn read_again(gitlab: &GitLab, project: &ProjectRef, iid: u64, head_sha: &str, reply: &Reply) -> Result<ArmAnswer, ForgeError> {
    let facts = gitlab.facts_of(project, iid).await?;
    Ok(settled(&facts, project, head_sha).unwrap_or_else(|| refused(&facts, reply)))
}

/// What a refused merge means for a merge request that is open and ours: a pipeline that has ended badly will not
/// pass by waiting, and a person who runs it again is noticed by the settlement.
fn refused(facts: &MrFacts, reply: &Reply) -> ArmAnswer {
    match facts.pipeline {
        PipelineState::Failed | PipelineState::Canceled | PipelineState::Skipped => {
            ArmAnswer::Never { reason: format!("its pipeline has ended as {:?}", facts.pipeline) }
        }
        PipelineState::Absent | PipelineState::Underway | PipelineState::Passed | PipelineState::Manual => {
            ArmAnswer::NotYet { reason: not_yet(facts, reply) }
        }
    }
}

fn not_yet(facts: &MrFacts, reply: &Reply) -> String {
    let status = match &facts.mergeability {
        Mergeability::Held(word) => format!("held by the forge: {word}"),
        Mergeability::Unchecked => UNCHECKED.to_owned(),
        Mergeability::Waiting | Mergeability::Ready | Mergeability::Conflict | Mergeability::NeedsRebase => {
            format!("the forge answered {} {}", reply.status, reply.text())
        }
    };
    match &facts.merge_error {
        Some(error) => format!("{status}; its last merge failed: {error}"),
        None => status,
    }
}

/// What the facts alone decide; `None` where it is worth trying.
fn settled(facts: &MrFacts, project: &ProjectRef, head_sha: &str) -> Option<ArmAnswer> {
    let not_yet = |reason: &str| Some(ArmAnswer::NotYet { reason: reason.to_owned() });
    let never = |reason: String| Some(ArmAnswer::Never { reason });
    match facts.state {
        MrState::Merged => return Some(ArmAnswer::Merged),
        MrState::Closed => return Some(ArmAnswer::Closed),
        MrState::Locked => return not_yet("a merge is in flight"),
        MrState::Unknown => return not_yet("it is in a state that this version does not know"),
        MrState::Opened => {}
    }
    if facts.target_branch != project.target_branch {
        return never(format!("it was pointed at branch {} in place of {}", facts.target_branch, project.target_branch));
    }
    match facts.head_sha.as_deref() {
        None => return not_yet("it is still being prepared"),
        Some(head) if head != head_sha => return Some(ArmAnswer::ForeignHead { head_sha: head.to_owned() }),
        Some(_) => {}
    }
    match &facts.mergeability {
        Mergeability::Conflict => never(format!("it conflicts with {}", facts.target_branch)),
        Mergeability::NeedsRebase => never(format!("{} has moved and the project merges by fast-forward", facts.target_branch)),
        Mergeability::Held(word) if word == "commits_status" => never("its source branch is gone or has no commits".to_owned()),
        _ if facts.armed => Some(ArmAnswer::Armed),
        // Asked now it would say no, at the price of two calls.
        Mergeability::Unchecked => not_yet(UNCHECKED),
        // Auto-merge can be set over what people still have to do; whether it can, GitLab says.
        Mergeability::Ready | Mergeability::Waiting | Mergeability::Held(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "1111111111111111111111111111111111111111";

    fn project() -> ProjectRef {
        ProjectRef { path: "acme/access".into(), id: None, target_branch: "main".into() }
    }

    fn opened() -> MrFacts {
        MrFacts {
            iid: 7,
            url: String::new(),
            state: MrState::Opened,
            source_branch: "b".into(),
            target_branch: "main".into(),
            head_sha: Some(HEAD.into()),
            armed: false,
            closed_by: None,
            closed_by_us: false,
            pipeline: PipelineState::Underway,
            pipeline_url: None,
            mergeability: Mergeability::Waiting,
            merge_commit_sha: None,
            squash_commit_sha: None,
            merge_error: None,
        }
    }

    fn decided(facts: MrFacts) -> Option<ArmAnswer> {
        settled(&facts, &project(), HEAD)
    }

    #[test]
    fn what_is_over_is_told_before_anything_else_is_looked_at() {
        let elsewhere = MrFacts { target_branch: "release".into(), head_sha: None, ..opened() };
        assert_eq!(decided(MrFacts { state: MrState::Merged, ..elsewhere.clone() }), Some(ArmAnswer::Merged));
        assert_eq!(decided(MrFacts { state: MrState::Closed, ..elsewhere }), Some(ArmAnswer::Closed));
    }

    #[test]
    fn a_merge_request_pointed_elsewhere_is_never_merged() {
        let elsewhere = MrFacts { target_branch: "release".into(), mergeability: Mergeability::Ready, ..opened() };
        assert!(matches!(decided(elsewhere), Some(ArmAnswer::Never { reason }) if reason.contains("release")));
    }

    #[test]
    fn a_foreign_head_is_told_even_when_it_is_armed() {
        let pushed = MrFacts { head_sha: Some("2".repeat(40)), armed: true, ..opened() };
        assert_eq!(decided(pushed), Some(ArmAnswer::ForeignHead { head_sha: "2".repeat(40) }));
    }

    #[test]
    fn waiting_passes_and_a_conflict_does_not() {
        for state in [MrState::Locked, MrState::Unknown] {
            assert!(matches!(decided(MrFacts { state, ..opened() }), Some(ArmAnswer::NotYet { .. })));
        }
        assert!(matches!(decided(MrFacts { head_sha: None, ..opened() }), Some(ArmAnswer::NotYet { .. })));
        assert!(matches!(decided(MrFacts { mergeability: Mergeability::Unchecked, ..opened() }), Some(ArmAnswer::NotYet { .. })));
        for mergeability in [Mergeability::Conflict, Mergeability::NeedsRebase, Mergeability::Held("commits_status".into())] {
            assert!(matches!(decided(MrFacts { mergeability, ..opened() }), Some(ArmAnswer::Never { .. })));
        }
        for mergeability in [Mergeability::Ready, Mergeability::Waiting, Mergeability::Held("not_approved".into())] {
            assert_eq!(decided(MrFacts { mergeability, ..opened() }), None);
        }
        assert_eq!(decided(MrFacts { armed: true, ..opened() }), Some(ArmAnswer::Armed));
    }

    #[test]
    fn the_head_is_read_from_the_text() {
        assert_eq!(named_sha(&format!("SHA does not match HEAD of source branch: {HEAD}")), Some(HEAD));
        assert_eq!(named_sha("409 SHA does not match HEAD of source branch"), None);
    }
}
