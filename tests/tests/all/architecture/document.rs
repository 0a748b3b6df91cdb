//! ARCHITECTURE.md, as far as machines can read it.

use std::collections::BTreeSet;

const TEXT: &str = include_str!("../../../../ARCHITECTURE.md");

/// The state of what is not there yet.
pub const NOTHING: &str = "(none)";

/// One row of the table of transitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub machine: String,
    pub from: String,
    pub to: String,
    /// Name of the guarded transaction.
    pub unit: String,
    /// Name of the SQL text whose WHERE is the guard.
    pub statement: String,
}

/// The table below `| machine | from | to | transaction | guard |`.
pub fn table() -> Vec<Row> {
    let mut lines = TEXT.lines().skip_while(|line| *line != "| machine | from | to | transaction | guard |").skip(1);
    assert_eq!(lines.next(), Some("|---|---|---|---|---|"), "the table of transitions is missing in ARCHITECTURE.md");
    lines.take_while(|line| line.starts_with('|')).map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [machine, from, to, unit, guard] = cells[..] else { panic!("not a row of five cells: {line}") };
    let code = |text: &str| text.split('`').nth(1).unwrap_or_else(|| panic!("nothing in back quotes in {text:?} of {line}")).to_owned();
    Row { machine: machine.to_owned(), from: from.to_owned(), to: to.to_owned(), unit: code(unit), statement: code(guard) }
}

/// Arrows of the state diagram that follows the heading `### MACHINE`, its ends left out.
pub fn drawn(machine: &str) -> BTreeSet<(String, String)> {
    let heading = format!("### {machine}");
    let mut lines = TEXT.lines().skip_while(|line| *line != heading).skip_while(|line| *line != "stateDiagram-v2").skip(1).peekable();
    assert!(lines.peek().is_some(), "ARCHITECTURE.md draws no state diagram below {heading:?}");
    lines
        .take_while(|line| *line != "```")
        .filter_map(|line| line.split(':').next()?.split_once("-->"))
        .map(|(from, to)| (from.trim(), to.trim()))
        .filter(|(_, to)| *to != "[*]")
        .map(|(from, to)| (if from == "[*]" { NOTHING } else { from }.to_owned(), to.to_owned()))
        .collect()
}
