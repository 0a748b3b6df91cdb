//! What to do about a batch, from three sources: our state, the merge request, and Git.
//!
//! Git decides whether a batch is merged; the merge request only says when to ask. A question costs
//! forge calls, so it is asked only where its answer can change what is done: `AskTarget`, `AskTargetPipeline`.

use crate::state::{BatchStatus, FailCause};

/// Code of a batch that is on the target branch with other content than was rendered: its partition is paused.
pub const MERGED_OTHER_CONTENT: &str = "merged_other_content";

/// The batch, as the database tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ours {
    pub status: BatchStatus,
    /// `begin_fail` has said why.
    pub failing: bool,
    /// Infrastructure failures that the most unlucky member has seen.
    pub infra_attempts: u64,
    pub infra_attempts_max: u64,
    pub overdue: Option<Overdue>,
}

/// Which of the three limits has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overdue {
    /// No merge request in time.
    NotStarted,
    /// No new step or pipeline status in time.
    NoProgress,
    Total,
}

impl Overdue {
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotStarted => "not_started_in_time",
            Self::NoProgress => "no_progress_in_time",
            Self::Total => "not_finished_in_time",
        }
    }
}

/// The merge request, as the forge tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Theirs {
    None,
    Opened {
        foreign_head: bool,
        pipeline: Pipeline,
        stuck: Option<Stuck>,
    },
    Locked,
    Merged,
    ClosedByUs,
    ClosedByPerson,
    /// The forge could not be asked, or answered a state that this version does not know.
    Unreachable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipeline {
    /// None yet, running, waiting for a person, or passed.
    Open,
    Failed,
    Canceled,
    Skipped,
}

/// Why an open merge request will not merge by waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    Conflict,
    NeedsRebase,
}

/// Is the batch's commit on the target branch? Git's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTarget {
    Yes,
    No,
    /// A commit that carries our token is there with other content.
    OtherContent,
    /// Git could not be asked.
    Unknown,
}

/// What has been asked so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    pub on_target: Option<OnTarget>,
    /// Did the target branch's own last finished pipeline at or before our start fail?
    pub target_red: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Wait,
    AskTarget,
    AskTargetPipeline,
    Succeed,
    BeginFail {
        cause: FailCause,
        code: &'static str,
    },
    Fail,
    Block {
        code: &'static str,
    },
    /// A batch that was failed is on the target branch after all.
    LateMerge,
    /// The batch has ended, and Git agrees.
    Ended,
}

/// Decides one step. Call it again with the answer after `AskTarget` or `AskTargetPipeline`.
pub fn decide(ours: &Ours, theirs: &Theirs, asked: Asked) -> Next {
    match (ours.status, ours.failing) {
        (BatchStatus::Succeeded, _) => Next::Ended,
        (BatchStatus::Failed, _) => after_failure(theirs, asked),
        (BatchStatus::Running | BatchStatus::Blocked, true) => finish_failing(theirs, asked),
        (BatchStatus::Running, false) => confirm(run(ours, theirs, asked), asked),
        (BatchStatus::Blocked, false) => confirm(hold(theirs), asked),
    }
}

fn after_failure(theirs: &Theirs, asked: Asked) -> Next {
    match (theirs, asked.on_target) {
        (_, Some(OnTarget::Yes)) => Next::LateMerge,
        (Theirs::Merged, None) => Next::AskTarget,
        _ => Next::Ended,
    }
}

/// Failing ends only when the merge request is final and Git has been asked.
fn finish_failing(theirs: &Theirs, asked: Asked) -> Next {
    match theirs {
        // Our withdrawal is under way; a merge in flight wins over it.
        Theirs::Opened { .. } | Theirs::Locked | Theirs::Unreachable => Next::Wait,
        Theirs::None | Theirs::ClosedByUs | Theirs::ClosedByPerson => match asked.on_target {
            None => Next::AskTarget,
            Some(OnTarget::Yes) => Next::Succeed,
            Some(OnTarget::No) => Next::Fail,
            Some(OnTarget::OtherContent | OnTarget::Unknown) => Next::Wait,
        },
        // Merged, yet maybe not visible to Git for a moment: never failed on this.
        Theirs::Merged => match asked.on_target {
            None => Next::AskTarget,
            Some(OnTarget::Yes) => Next::Succeed,
            Some(_) => Next::Wait,
        },
    }
}

/// Whatever a verdict says: on the target branch is merged. Git is asked before anything is given up.
fn confirm(verdict: Next, asked: Asked) -> Next {
    if verdict == Next::Wait || verdict == Next::AskTargetPipeline {
        return verdict;
    }
    match asked.on_target {
        None => Next::AskTarget,
        Some(OnTarget::Yes) => Next::Succeed,
        Some(OnTarget::Unknown) => Next::Wait,
        Some(OnTarget::OtherContent) => match verdict {
            // Held for a person already.
            Next::AskTarget => Next::Wait,
            _ => Next::Block { code: MERGED_OTHER_CONTENT },
        },
        Some(OnTarget::No) => match verdict {
            Next::AskTarget => Next::Wait,
            other => other,
        },
    }
}

fn run(ours: &Ours, theirs: &Theirs, asked: Asked) -> Next {
    match theirs {
        Theirs::Unreachable => Next::Wait,
        Theirs::None => match ours.overdue {
            Some(overdue) => infrastructure(ours, overdue.code()),
            None => Next::Wait,
        },
        Theirs::Opened { foreign_head: true, .. } => Next::Block { code: "foreign_head" },
        Theirs::Opened { pipeline, stuck, .. } => match (pipeline, stuck) {
            (Pipeline::Failed, _) => content(ours, asked),
            (_, Some(Stuck::Conflict)) => infrastructure(ours, "conflict"),
            (_, Some(Stuck::NeedsRebase)) => infrastructure(ours, "needs_rebase"),
            (Pipeline::Canceled, None) => infrastructure(ours, "pipeline_canceled"),
            (Pipeline::Skipped, None) => infrastructure(ours, "pipeline_skipped"),
            (Pipeline::Open, None) => match ours.overdue {
                Some(overdue) => infrastructure(ours, overdue.code()),
                None => Next::Wait,
            },
        },
        Theirs::Locked => match ours.overdue {
            Some(_) => Next::Block { code: "locked_past_deadline" },
            None => Next::Wait,
        },
        Theirs::Merged => match (asked.on_target, ours.overdue) {
            (Some(OnTarget::No), Some(_)) => Next::Block { code: "merged_not_on_target" },
            (Some(OnTarget::OtherContent), _) => Next::Block { code: MERGED_OTHER_CONTENT },
            _ => Next::AskTarget,
        },
        Theirs::ClosedByPerson => Next::BeginFail { cause: FailCause::Rejected, code: "closed_by_person" },
        Theirs::ClosedByUs => infrastructure(ours, "closed_by_us"),
    }
}

/// A held batch moves only where somebody else has ended it.
fn hold(theirs: &Theirs) -> Next {
    match theirs {
        Theirs::Merged => Next::AskTarget,
        Theirs::ClosedByPerson => Next::BeginFail { cause: FailCause::Rejected, code: "closed_by_person" },
        Theirs::None | Theirs::Opened { .. } | Theirs::Locked | Theirs::ClosedByUs | Theirs::Unreachable => Next::Wait,
    }
}

/// Nobody is to blame: the members wait again, unless that has been tried too often.
pub fn infrastructure(ours: &Ours, code: &'static str) -> Next {
    if ours.infra_attempts + 1 >= ours.infra_attempts_max {
        Next::Block { code: "infra_attempts_exhausted" }
    } else {
        Next::BeginFail { cause: FailCause::Infrastructure, code }
    }
}

/// The content may be to blame, but only if the target itself is not red. `fail` then halves the batch, and
/// convicts where it was one alone.
fn content(ours: &Ours, asked: Asked) -> Next {
    match asked.target_red {
        None => Next::AskTargetPipeline,
        Some(true) => infrastructure(ours, "target_red"),
        Some(false) => Next::BeginFail { cause: FailCause::Content, code: "pipeline_failed" },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [(BatchStatus, bool); 6] = [
        (BatchStatus::Running, false),
        (BatchStatus::Running, true),
        (BatchStatus::Blocked, false),
        (BatchStatus::Blocked, true),
        (BatchStatus::Succeeded, false),
        (BatchStatus::Failed, true),
    ];
    const ANSWERS: [OnTarget; 4] = [OnTarget::Yes, OnTarget::No, OnTarget::OtherContent, OnTarget::Unknown];

    fn ours(status: BatchStatus, failing: bool) -> Ours {
        Ours { status, failing, infra_attempts: 0, infra_attempts_max: 5, overdue: None }
    }

    fn all_theirs() -> Vec<Theirs> {
        let mut all = vec![Theirs::None, Theirs::Locked, Theirs::Merged, Theirs::ClosedByUs, Theirs::ClosedByPerson, Theirs::Unreachable];
        for foreign_head in [false, true] {
            for pipeline in [Pipeline::Open, Pipeline::Failed, Pipeline::Canceled, Pipeline::Skipped] {
                for stuck in [None, Some(Stuck::Conflict), Some(Stuck::NeedsRebase)] {
                    all.push(Theirs::Opened { foreign_head, pipeline, stuck });
                }
            }
        }
        all
    }

    /// Asks until the decision is one that acts.
    fn act(ours: &Ours, theirs: &Theirs, on_target: OnTarget, target_red: bool) -> Next {
        let mut asked = Asked::default();
        for _ in 0..3 {
            match decide(ours, theirs, asked) {
                Next::AskTarget => asked.on_target = Some(on_target),
                Next::AskTargetPipeline => asked.target_red = Some(target_red),
                next => return next,
            }
        }
        panic!("asks for ever: {ours:?} {theirs:?} {on_target:?}")
    }

    #[test]
    fn what_is_on_the_target_branch_is_never_failed() {
        for (status, failing) in STATES {
            for overdue in [None, Some(Overdue::NotStarted), Some(Overdue::NoProgress), Some(Overdue::Total)] {
                for theirs in all_theirs() {
                    let ours = Ours { overdue, ..ours(status, failing) };
                    let next = act(&ours, &theirs, OnTarget::Yes, false);
                    assert!(!matches!(next, Next::Fail | Next::BeginFail { .. } | Next::Block { .. }), "{ours:?} {theirs:?}: {next:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_settled_while_git_cannot_be_asked() {
        for (status, failing) in STATES {
            for theirs in all_theirs() {
                let next = act(&Ours { overdue: Some(Overdue::Total), ..ours(status, failing) }, &theirs, OnTarget::Unknown, false);
                assert!(matches!(next, Next::Wait | Next::Ended), "{status:?} {failing} {theirs:?}: {next:?}");
            }
        }
    }

    #[test]
    fn success_needs_gits_yes() {
        for (status, failing) in STATES {
            for theirs in all_theirs() {
                for answer in ANSWERS.into_iter().filter(|answer| *answer != OnTarget::Yes) {
                    assert_ne!(act(&ours(status, failing), &theirs, answer, false), Next::Succeed, "{status:?} {theirs:?} {answer:?}");
                }
            }
        }
    }

    #[test]
    fn a_failing_batch_ends_only_when_its_merge_request_is_final() {
        let failing = ours(BatchStatus::Running, true);
        for theirs in all_theirs() {
            let is_final = matches!(theirs, Theirs::None | Theirs::ClosedByUs | Theirs::ClosedByPerson);
            assert_eq!(act(&failing, &theirs, OnTarget::No, false), if is_final { Next::Fail } else { Next::Wait }, "{theirs:?}");
            let merged = is_final || theirs == Theirs::Merged;
            assert_eq!(act(&failing, &theirs, OnTarget::Yes, false), if merged { Next::Succeed } else { Next::Wait }, "{theirs:?}");
        }
    }

    #[test]
    fn our_own_close_is_not_a_persons_decision() {
        let running = ours(BatchStatus::Running, false);
        let rejected = Next::BeginFail { cause: FailCause::Rejected, code: "closed_by_person" };
        assert_eq!(act(&running, &Theirs::ClosedByPerson, OnTarget::No, false), rejected);
        let requeued = Next::BeginFail { cause: FailCause::Infrastructure, code: "closed_by_us" };
        assert_eq!(act(&running, &Theirs::ClosedByUs, OnTarget::No, false), requeued);
    }

    #[test]
    fn content_is_blamed_only_on_a_green_target() {
        let failed = Theirs::Opened { foreign_head: false, pipeline: Pipeline::Failed, stuck: None };
        let one = ours(BatchStatus::Running, false);
        assert_eq!(act(&one, &failed, OnTarget::No, false), Next::BeginFail { cause: FailCause::Content, code: "pipeline_failed" });
        assert_eq!(act(&one, &failed, OnTarget::No, true), Next::BeginFail { cause: FailCause::Infrastructure, code: "target_red" });
    }

    #[test]
    fn infrastructure_is_retried_until_the_limit_then_held() {
        let theirs = Theirs::Opened { foreign_head: false, pipeline: Pipeline::Open, stuck: Some(Stuck::Conflict) };
        let last_but_one = Ours { infra_attempts: 3, ..ours(BatchStatus::Running, false) };
        assert_eq!(
            act(&last_but_one, &theirs, OnTarget::No, false),
            Next::BeginFail { cause: FailCause::Infrastructure, code: "conflict" }
        );
        let exhausted = Ours { infra_attempts: 4, ..last_but_one };
        assert_eq!(act(&exhausted, &theirs, OnTarget::No, false), Next::Block { code: "infra_attempts_exhausted" });
    }

    #[test]
    fn a_limit_that_has_passed_never_ends_a_locked_merge() {
        let overdue = Ours { overdue: Some(Overdue::NoProgress), ..ours(BatchStatus::Running, false) };
        assert_eq!(act(&overdue, &Theirs::Locked, OnTarget::No, false), Next::Block { code: "locked_past_deadline" });
        assert_eq!(act(&overdue, &Theirs::Merged, OnTarget::No, false), Next::Block { code: "merged_not_on_target" });
        assert_eq!(act(&ours(BatchStatus::Running, false), &Theirs::Locked, OnTarget::No, false), Next::Wait);
    }
}
