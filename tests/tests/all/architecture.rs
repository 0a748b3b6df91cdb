//! ARCHITECTURE.md says which state follows which, by what, and under which guard. Here it is held against the code:
//! against every transition that the units make from every state that they can reach, against every SQL text that
//! writes a state, against the enums, and against its own drawings.

mod document;
mod explore;
mod map;
mod statements;

use std::collections::{BTreeMap, BTreeSet};

use shared::state::{BatchStatus, BindingStatus, OperationStatus};

use document::{Row, drawn, table};
use map::Transitions;

/// Units that move no state of a request, a relationship or a batch: they write none of the statements of the table.
const STATELESS: [&str; 13] = [
    "begin_fail",
    "lease_deliveries",
    "note_progress",
    "pause",
    "purge",
    "purge_contents",
    "purge_dated",
    "rearm",
    "record_command",
    "record_deliveries",
    "record_merge_request",
    "set_partition",
    "set_target",
];

/// What a row of the table and a transition that was seen have in common.
type Edge = (String, String, String, String);

fn edge(row: &Row) -> Edge {
    (row.machine.clone(), row.from.clone(), row.to.clone(), row.unit.clone())
}

/// Every state that the units can bring one relationship to is visited, and every unit is run in it: what is not in the
/// table is done by none of them, and what is in the table by just the unit that it names, through the statement it names.
#[tokio::test]
async fn the_units_make_the_transitions_of_the_table_and_no_other() {
    let table = table();
    let seen: Transitions = explore::all_transitions().await;
    let written: BTreeSet<Edge> = table.iter().map(edge).collect();
    assert_eq!(written.len(), table.len(), "a row of the table is there twice");
    let made: BTreeSet<Edge> = seen.keys().cloned().collect();
    let (untold, unmade): (Vec<_>, Vec<_>) = (made.difference(&written).collect(), written.difference(&made).collect());
    assert!(untold.is_empty(), "made by a unit, and missing in ARCHITECTURE.md: {untold:#?}");
    assert!(unmade.is_empty(), "in ARCHITECTURE.md, and made by no unit: {unmade:#?}");
    for row in &table {
        let statements = &seen[&edge(row)];
        assert!(statements.contains(&row.statement), "{row:?} was made by {statements:#?}");
    }
}

#[test]
fn every_statement_that_writes_a_state_is_the_guard_of_a_row() {
    let named: BTreeSet<String> = table().into_iter().map(|row| row.statement).collect();
    let writing: BTreeSet<String> = statements::all().into_iter().filter(statements::writes_a_state).map(|one| one.name).collect();
    assert_eq!(named, writing);
}

#[test]
fn every_unit_has_its_rows_or_moves_no_state() {
    let in_table: BTreeSet<String> = table().into_iter().map(|row| row.unit).collect();
    let accounted: BTreeSet<String> = in_table.into_iter().chain(STATELESS.map(str::to_owned)).collect();
    assert_eq!(accounted, statements::units());
}

#[test]
fn the_states_are_those_of_the_code() {
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in table() {
        let states = named.entry(row.machine).or_default();
        states.extend([row.from, row.to]);
        states.remove(document::NOTHING);
    }
    let of = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    let known = BTreeMap::from([
        ("operation".to_owned(), of(OperationStatus::ALL.iter().map(|one| one.name()).collect())),
        ("binding".to_owned(), of(BindingStatus::ALL.iter().map(|one| one.name()).collect())),
        ("batch".to_owned(), of(BatchStatus::ALL.iter().map(|one| one.name()).collect())),
    ]);
    assert_eq!(named, known);
}

#[test]
fn the_drawings_show_what_the_table_says() {
    for machine in ["operation", "binding", "batch"] {
        let told: BTreeSet<(String, String)> =
            table().into_iter().filter(|row| row.machine == machine).map(|row| (row.from, row.to)).collect();
        assert_eq!(drawn(machine), told, "the drawing of {machine}");
    }
}
