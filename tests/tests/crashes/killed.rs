//! Functions as real processes, killed in the middle of their work.

use muster_tests::crash::matrix::{cells, counted, faulty, run, whole};
use muster_tests::crash::{Answer, Story, child, report};

/// Cells of each story that are run with every test run; `make crash-matrix` runs all.
const KILLED: usize = 2;

#[tokio::test]
#[ignore = "this is the process that the others kill"]
async fn the_process_that_is_killed() {
    child::run().await;
}

async fn is_survived(story: Story) {
    let good = counted(story, Answer::Ok, 0).await;
    assert_eq!(report::breaches(&good), "");
    let all = cells(&good);
    assert!(all.len() >= KILLED, "{:?}", good.outcome.boundaries);
    for cell in all.iter().skip(all.len() / KILLED / 2).step_by(all.len() / KILLED) {
        let row = run(*cell).await;
        assert_eq!(report::breaches(&row), "");
    }
    // A call in the middle, whose answer nobody learns, and the process dies as it would have.
    let courses = faulty(&good);
    let Some((answer, call)) = courses.iter().filter(|(answer, _)| *answer == Answer::Lost).nth(courses.len() / Answer::ALL.len() / 2)
    else {
        return;
    };
    let cell = muster_tests::crash::Cell { story, answer: *answer, call: *call, boundary: None };
    let course = counted(cell.story, cell.answer, cell.call).await;
    assert_eq!(report::breaches(&course), "");
    let row = run(cells(&course)[0]).await;
    assert_eq!(report::breaches(&row), "");
}

#[tokio::test]
async fn a_request_is_admitted_once_although_the_function_died() {
    is_survived(Story::Admit).await;
}

#[tokio::test]
async fn a_round_is_finished_by_others_when_its_function_dies() {
    is_survived(Story::Round).await;
}

#[tokio::test]
async fn a_merge_is_settled_once_although_the_function_died() {
    is_survived(Story::Landed).await;
}

#[tokio::test]
async fn a_conviction_is_finished_by_others_when_its_function_dies() {
    is_survived(Story::Convicted).await;
}

#[tokio::test]
async fn a_time_out_is_finished_by_others_when_the_sweep_dies() {
    is_survived(Story::TimedOut).await;
}

#[tokio::test]
async fn an_operators_order_is_finished_by_others_when_its_function_dies() {
    is_survived(Story::Requeued).await;
}

#[tokio::test]
async fn an_expiry_is_finished_by_others_when_the_sweep_dies() {
    is_survived(Story::Expired).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: `make crash-matrix`"]
async fn the_whole_crash_matrix() {
    let number = |name: &str| local::environment::variable(name).and_then(|text| text.parse().ok());
    let (parallel, every) = (number("CRASH_PARALLEL").unwrap_or(8), number("CRASH_EVERY").unwrap_or(1));
    let named = local::environment::variable("CRASH_STORIES");
    let stories: Vec<Story> =
        Story::ALL.into_iter().filter(|story| named.as_ref().is_none_or(|named| format!("{story:?}") == *named)).collect();
    let rows = whole(&stories, parallel, every, |row| eprint!("{}", progress(row))).await;
    let page = report::page(&rows, every);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/CRASH_MATRIX.md");
    if named.is_none() {
        std::fs::write(path, &page).expect("docs/CRASH_MATRIX.md can be written");
    }
    let (summary, is_well) = report::summary(&rows);
    println!("\n{}\n{}{summary}", report::table(&rows), rows.iter().map(report::breaches).collect::<String>());
    // Ended here, so that the summary is the last line.
    std::process::exit(i32::from(!is_well));
}

fn progress(row: &muster_tests::crash::matrix::Row) -> String {
    let breaches = report::breaches(row);
    if breaches.is_empty() { ".".into() } else { format!("\n{breaches}") }
}
