//! The list of mutants: that it cannot rot, and that what it says is so. `make mutants` tries all of them.

use std::collections::BTreeMap;
use std::process::Command;

use local::mutants::{self, Mutant, Place};
use muster_tests::World;
use muster_tests::existing::Existing;
use muster_tests::mutated::Change;
use muster_tests::statements;
use mysql_async::prelude::Queryable;

/// Mutants of SQL that are tried here, each with the first of its killers: one for each kind of guard.
const TRIED_HERE: [&str; 5] = ["S-claim-row-unclaimed", "S-succeed-blocked", "S-begin-fail-once", "S-admit-seat-free", "S-deliver-lease"];

fn change(mutant: &Mutant) -> Option<Change> {
    let Place::Statement(statement) = mutant.place() else { return None };
    Some(Change { statement: statement.to_owned(), text: mutant.text.clone(), replacement: mutant.replacement.clone() })
}

#[test]
fn every_mutant_changes_a_text_that_is_there_once() {
    let statements: BTreeMap<String, String> = statements::all().into_iter().map(|one| (one.name, one.sql)).collect();
    let sources: BTreeMap<String, String> = statements::sources().into_iter().collect();
    let mut wrong = Vec::new();
    for mutant in mutants::all().expect("the list is of its form") {
        match mutant.place() {
            Place::Statement(name) => {
                let times = statements.get(name).map_or(0, |sql| sql.matches(&mutant.text).count());
                if times != 1 {
                    wrong.push(format!("{}: its text stands {times} times in {name}", mutant.id));
                }
            }
            Place::File { path, .. } => match sources.get(path) {
                Some(source) => wrong.extend(mutants::position(source, &mutant).err().map(|why| why.to_string())),
                None => wrong.push(format!("{}: there is no {path}", mutant.id)),
            },
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_killer_is_a_test() {
    let tests = Existing::read();
    let all = mutants::all().expect("the list is of its form");
    let missing: Vec<(&str, &str)> = all
        .iter()
        .flat_map(|mutant| mutant.killers.iter().map(|killer| (mutant.id.as_str(), killer.as_str())))
        .filter(|(_, killer)| !tests.has(killer))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_list_holds_a_guard_of_every_unit_that_moves_a_state() {
    let all = mutants::all().expect("the list is of its form");
    assert!(all.len() >= 25, "only {} mutants", all.len());
    let told: String = all.iter().map(|one| format!("{:?} ", one.place())).collect();
    for unit in [
        "admit.",
        "claim.",
        "succeed.",
        "fail.",
        "begin_fail.",
        "block.",
        "unblock.",
        "record_render.",
        "record_merge_request.",
        "withdraw.",
        "close_failed.",
        "recover.",
        "reconcile_late_merge.",
        "deliveries.",
        "members.",
        "seats.",
    ] {
        assert!(told.contains(&format!("Statement(\"{unit}")), "no mutant of a statement {unit}…");
    }
}

/// A mutant that the server refuses would be killed by any test, and say nothing.
#[tokio::test]
async fn every_mutant_of_sql_is_right_sql() {
    let statements: BTreeMap<String, String> = statements::all().into_iter().map(|one| (one.name, one.sql)).collect();
    let world = World::new().await;
    let mut session = world.session().await;
    for mutant in mutants::all().expect("the list is of its form") {
        let Some(change) = change(&mutant) else { continue };
        let original = &statements[&change.statement];
        let mutated = change.of(original);
        let prepared = session.prep(&mutated).await.unwrap_or_else(|why| panic!("{}: {why}: {mutated}", mutant.id));
        let as_before = session.prep(original).await.expect("a statement of ours").num_params();
        assert_eq!(prepared.num_params(), as_before, "{}: the code gives {as_before} parameters", mutant.id);
        session.close(prepared).await.expect("a statement can be closed");
    }
}

/// Runs one test of this very binary, in a process of its own, with a mutant in place.
fn passes(test: &str, mutant: Option<&str>) -> bool {
    let mut run = Command::new(std::env::current_exe().expect("this test has a binary"));
    run.args(["--exact", test]);
    match mutant {
        Some(id) => run.env(mutants::VARIABLE, id),
        None => run.env_remove(mutants::VARIABLE),
    };
    let ended = run.output().expect("a test can be started");
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(told.contains("running 1 test"), "{test} is no test: {told}");
    ended.status.success()
}

#[test]
fn some_mutants_of_sql_are_killed_and_their_killers_pass_without_them() {
    let all = mutants::all().expect("the list is of its form");
    std::thread::scope(|scope| {
        for id in TRIED_HERE {
            let mutant = all.iter().find(|one| one.id == id).unwrap_or_else(|| panic!("there is no mutant {id}"));
            scope.spawn(move || {
                let killer = &mutant.killers[0];
                assert!(passes(killer, None), "{killer} fails by itself");
                assert!(!passes(killer, Some(&mutant.id)), "{killer} does not see {}: {}", mutant.id, mutant.what);
            });
        }
    });
}
