//! `docs/SETTLEMENT.md` shows what `decide` does, cell by cell.

use std::fmt::Write as _;

use shared::decide::settlement::{Asked, Next, OnTarget, Ours, Overdue, Pipeline, Stuck, Theirs, decide};
use shared::state::BatchStatus;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/SETTLEMENT.md");
const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->";

fn opened(foreign_head: bool, pipeline: Pipeline, stuck: Option<Stuck>) -> Theirs {
    Theirs::Opened { foreign_head, pipeline, stuck }
}

fn all_ours() -> Vec<(&'static str, BatchStatus, bool)> {
    vec![
        ("RUNNING", BatchStatus::Running, false),
        ("BLOCKED", BatchStatus::Blocked, false),
        ("failing (fail_code set)", BatchStatus::Running, true),
        ("SUCCEEDED", BatchStatus::Succeeded, false),
        ("FAILED", BatchStatus::Failed, true),
    ]
}

fn all_theirs() -> Vec<(&'static str, Theirs)> {
    vec![
        ("none", Theirs::None),
        ("opened, pipeline not ended or passed", opened(false, Pipeline::Open, None)),
        ("opened, pipeline failed", opened(false, Pipeline::Failed, None)),
        ("opened, pipeline cancelled", opened(false, Pipeline::Canceled, None)),
        ("opened, pipeline skipped", opened(false, Pipeline::Skipped, None)),
        ("opened, conflict", opened(false, Pipeline::Open, Some(Stuck::Conflict))),
        ("opened, needs rebase", opened(false, Pipeline::Open, Some(Stuck::NeedsRebase))),
        ("opened, foreign head", opened(true, Pipeline::Open, None)),
        ("locked", Theirs::Locked),
        ("merged", Theirs::Merged),
        ("closed by us", Theirs::ClosedByUs),
        ("closed by a person", Theirs::ClosedByPerson),
        ("unreachable, or an unknown state", Theirs::Unreachable),
    ]
}

/// Asks until the decision is one that acts; the target is green unless said otherwise.
fn act(ours: &Ours, theirs: &Theirs, on_target: OnTarget, target_red: bool) -> (Next, bool) {
    let mut asked = Asked::default();
    for _ in 0..3 {
        match decide(ours, theirs, asked) {
            Next::AskTarget => asked.on_target = Some(on_target),
            Next::AskTargetPipeline => asked.target_red = Some(target_red),
            next => return (next, asked.on_target.is_some()),
        }
    }
    panic!("asks for ever: {ours:?} {theirs:?} {on_target:?}")
}

fn told(next: &Next) -> String {
    match next {
        Next::Wait => "wait".into(),
        Next::Succeed => "succeed".into(),
        Next::Fail => "fail".into(),
        Next::BeginFail { cause, code } => format!("begin_fail {} `{code}`", cause.name()),
        Next::Block { code } => format!("block `{code}`"),
        Next::LateMerge => "reconcile_late_merge".into(),
        Next::Ended => "nothing".into(),
        Next::AskTarget | Next::AskTargetPipeline => unreachable!("`act` answers every question"),
    }
}

fn table() -> String {
    let mut text = String::from(
        "| our state | merge request | Git | on target: yes | no | no, a limit has passed | other content | Git unreachable |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (ours_name, status, failing) in all_ours() {
        for (theirs_name, theirs) in all_theirs() {
            let ours = |overdue| Ours { status, failing, infra_attempts: 0, infra_attempts_max: 5, overdue };
            let cell = |on_target, overdue| told(&act(&ours(overdue), &theirs, on_target, false).0);
            let (_, asks) = act(&ours(None), &theirs, OnTarget::No, false);
            let overdue = if theirs == Theirs::None { Overdue::NotStarted } else { Overdue::NoProgress };
            let _ = writeln!(
                text,
                "| {ours_name} | {theirs_name} | {} | {} | {} | {} | {} | {} |",
                if asks { "asks Git" } else { "does not ask" },
                cell(OnTarget::Yes, None),
                cell(OnTarget::No, None),
                cell(OnTarget::No, Some(overdue)),
                cell(OnTarget::OtherContent, None),
                cell(OnTarget::Unknown, None),
            );
        }
    }
    text
}

#[test]
fn the_document_shows_every_cell_as_it_is_decided() {
    let document = std::fs::read_to_string(DOCUMENT).expect("docs/SETTLEMENT.md exists");
    let (before, rest) = document.split_once(BEGIN).expect("the table's begin mark");
    let (shown, after) = rest.split_once(END).expect("the table's end mark");
    let decided = table();
    if shown != decided {
        let written = std::env::temp_dir().join("SETTLEMENT.md");
        std::fs::write(&written, format!("{before}{BEGIN}{decided}{END}{after}")).expect("a temporary file can be written");
        panic!("docs/SETTLEMENT.md differs from what is decided; compare it with {} and copy that if it is right", written.display());
    }
}
