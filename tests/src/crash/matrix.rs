//! Which cells there are: every boundary of every story, and again after each answer to each call.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::answers::Answer;
use super::cell::{Cell, Outcome};
use super::story::Story;
use super::turnstile::FORGE;

/// A course in which time takes part may differ from the one that was counted; it is tried so often.
const TRIES: u32 = 4;

/// A cell that was run, and where it was killed.
pub struct Row {
    pub cell: Cell,
    /// The boundary in words; `None`: the process ran to its end.
    pub killed_at: Option<String>,
    /// Within [`TRIES`].
    pub is_met: bool,
    pub outcome: Outcome,
}

/// Runs a course to its end once, to count.
pub async fn counted(story: Story, answer: Answer, call: u32) -> Row {
    let cell = Cell { story, answer, call, boundary: None };
    let outcome = cell.run().await;
    Row { cell, killed_at: None, is_met: outcome.is_met, outcome }
}

/// Every cell of one course: each boundary after the answer, or each at all where the forge answers as it should.
pub fn cells(course: &Row) -> Vec<Cell> {
    let boundaries = &course.outcome.boundaries;
    let from = if course.cell.answer == Answer::Ok {
        0
    } else {
        let calls = boundaries.iter().enumerate().filter(|(_, label)| is_call(label));
        // What lies before the answered call is as in the course without a fault.
        match calls.map(|(at, _)| at + 1).nth(course.cell.call as usize - 1) {
            Some(from) => from,
            None => return Vec::new(),
        }
    };
    (from..boundaries.len()).map(|at| Cell { boundary: Some(at as u32 + 1), ..course.cell }).collect()
}

/// The faulty courses that a good one leads to: each fitting answer to each of its calls.
pub fn faulty(course: &Row) -> Vec<(Answer, u32)> {
    let calls = course.outcome.boundaries.iter().filter(|label| is_call(label));
    calls
        .zip(1..)
        .flat_map(|(label, call)| {
            Answer::ALL.into_iter().filter(|answer| *answer != Answer::Ok && answer.fits(label)).map(move |answer| (answer, call))
        })
        .collect()
}

fn is_call(label: &str) -> bool {
    label.starts_with(FORGE) && label.ends_with(": before")
}

/// Runs one cell, again where its boundary did not come.
pub async fn run(cell: Cell) -> Row {
    let mut tries = 0;
    loop {
        let outcome = cell.run().await;
        tries += 1;
        if outcome.is_met || tries == TRIES || !outcome.verdict.is_clean() {
            let killed_at = outcome.is_met.then(|| outcome.boundaries.last().cloned()).flatten();
            return Row { cell, killed_at, is_met: outcome.is_met, outcome };
        }
    }
}

/// Runs one cell on a thread and a runtime of its own, once its turn comes.
async fn apart(turns: Arc<Semaphore>, run: impl AsyncFnOnce() -> Row + Send + 'static) -> Row {
    let _turn = turns.acquire_owned().await.expect("the semaphore is never closed");
    let alone = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
        runtime.block_on(run())
    };
    tokio::task::spawn_blocking(alone).await.expect("no cell panics")
}

/// Runs every n-th faulty course and of each course every n-th cell (`every` 1: all), `parallel` at a time; `told` hears of each
/// as it ends.
pub async fn whole(stories: &[Story], parallel: usize, every: usize, told: impl Fn(&Row)) -> Vec<Row> {
    let permits = Arc::new(Semaphore::new(parallel));
    let mut rows = Vec::new();
    for story in stories {
        let good = counted(*story, Answer::Ok, 0).await;
        told(&good);
        let courses = faulty(&good).into_iter().step_by(every);
        let mut counting = JoinSet::new();
        for (answer, call) in courses {
            let story = *story;
            counting.spawn(apart(permits.clone(), async move || counted(story, answer, call).await));
        }
        let mut courses = vec![good];
        while let Some(course) = counting.join_next().await {
            let course = course.expect("no cell panics");
            told(&course);
            courses.push(course);
        }
        let mut running = JoinSet::new();
        for cell in courses.iter().flat_map(cells).step_by(every) {
            running.spawn(apart(permits.clone(), async move || run(cell).await));
        }
        rows.extend(courses);
        while let Some(row) = running.join_next().await {
            let row = row.expect("no cell panics");
            told(&row);
            rows.push(row);
        }
    }
    rows
}
