//! The matrix as a page.

use std::fmt::Write as _;

use super::answers::Answer;
use super::matrix::Row;
use super::story::Story;

/// `crash-matrix: N cells, 0 stuck, 0 double, 0 lost`, and whether all is well.
pub fn summary(rows: &[Row]) -> (String, bool) {
    let killed = rows.iter().filter(|row| row.killed_at.is_some()).count();
    let bad = |of: fn(&Row) -> bool| rows.iter().filter(|row| of(row)).count();
    let stuck = bad(|row| !row.outcome.verdict.stuck.is_empty());
    let double = bad(|row| !row.outcome.verdict.double.is_empty());
    let lost = bad(|row| !row.outcome.verdict.lost.is_empty());
    let unmet = bad(|row| !row.is_met);
    let all_met = if unmet == 0 { String::new() } else { format!(", {unmet} not met") };
    (format!("crash-matrix: {killed} cells, {stuck} stuck, {double} double, {lost} lost{all_met}"), stuck + double + lost + unmet == 0)
}

/// One line for each story: cells by answer, and what went wrong.
pub fn table(rows: &[Row]) -> String {
    let mut text = "| killed while |".to_owned();
    for answer in Answer::ALL {
        let _ = write!(text, " {} |", answer.name());
    }
    text += " stuck | double | lost |\n|---|";
    text += &"---:|".repeat(Answer::ALL.len() + 3);
    text.push('\n');
    for story in Story::ALL {
        let here: Vec<&Row> = rows.iter().filter(|row| row.cell.story == story).collect();
        let _ = write!(text, "| {} |", story.name());
        for answer in Answer::ALL {
            let _ = write!(text, " {} |", here.iter().filter(|row| row.cell.answer == answer && row.killed_at.is_some()).count());
        }
        let bad = |of: fn(&Row) -> bool| here.iter().filter(|row| of(row)).count();
        let _ = writeln!(
            text,
            " {} | {} | {} |",
            bad(|row| !row.outcome.verdict.stuck.is_empty()),
            bad(|row| !row.outcome.verdict.double.is_empty()),
            bad(|row| !row.outcome.verdict.lost.is_empty())
        );
    }
    text
}

/// What went wrong, one line for each breach; empty where nothing did.
pub fn breaches(row: &Row) -> String {
    let verdict = &row.outcome.verdict;
    let of = |kind: &'static str, all: &[String]| all.iter().map(|what| format!("{kind}: {what}\n")).collect::<String>();
    let mut told = of("stuck", &verdict.stuck) + &of("double", &verdict.double) + &of("lost", &verdict.lost);
    if !row.is_met {
        let _ = writeln!(told, "not met: the course had {} boundaries", row.outcome.boundaries.len());
    }
    if told.is_empty() {
        return told;
    }
    format!(
        "{}, {} to call {}, killed at {:?} ({:?}):\n{told}",
        row.cell.story.name(),
        row.cell.answer.name(),
        row.cell.call,
        row.cell.boundary,
        row.killed_at
    )
}

/// The whole page, of every n-th cell.
pub fn page(rows: &[Row], every: usize) -> String {
    let mut text = INTRODUCTION.to_owned();
    if every > 1 {
        let _ = write!(
            text,
            "**This page is of a shortened run**, `CRASH_EVERY={every}`: one of {every} faulty courses, and one of {every} cells of each.\n\n"
        );
    }
    text += &table(rows);
    text += "\n## The boundaries\n\nAs they were met where the forge answered as it should. A call that is answered otherwise makes a course of its own, \
             which was counted in the same way.\n";
    for story in Story::ALL {
        let Some(course) = rows.iter().find(|row| row.cell.story == story && row.cell.answer == Answer::Ok && row.cell.boundary.is_none())
        else {
            continue;
        };
        let _ = write!(text, "\n### {}\n\n", story.name());
        for (at, label) in course.outcome.boundaries.iter().enumerate() {
            let _ = writeln!(text, "{}. {label}", at + 1);
        }
    }
    let wrong: String = rows.iter().map(breaches).collect();
    if !wrong.is_empty() {
        let _ = write!(text, "\n## What went wrong\n\n```\n{wrong}```\n");
    }
    let (summary, _) = summary(rows);
    let _ = write!(text, "\n{summary}\n");
    text
}

const INTRODUCTION: &str = "\
# The crash matrix

Written by `make crash-matrix`. In every cell a function runs as a process of its own against a real database and the GitLab stand-in,
and is killed with SIGKILL at one boundary: before or after a transaction, before its COMMIT, before or after each HTTP call of the forge, before or
after each call of the queue. Boundaries are counted by running the process to its end; nobody lists them.

The columns are what the forge answered to one of the calls of that course; the process is killed at every boundary from that answer on. A
*lost answer* took effect and nobody learns of it; *409* is a resource lock; *5xx* is a proxy's 502 without effect or a 500 after it, by turns; a
*timeout* takes effect after the caller has given up, and often after it has died. A call that only reads is answered with 429 and 5xx, which say
all that the others would.

Then the clock of the database is moved on in steps of 100 s, and what runs by itself runs: the sweep, the scheduled round, and for every other
cell the invocation that died, once more. In the end

- *stuck* counts cells with a request, a batch or an effect that has not come to its end, or a merge request that is still open;
- *double* counts cells in which two merge requests of one batch are open or merged, two commits on the target branch carry one request, or one end was
  told under two ids;
- *lost* counts cells in which a request is missing, is not where it must be, is on the target branch and not MERGED or the other way round,
  in which nobody was told, or in which the SQL of an invariant finds a row.

";
