//! `docs/GUARANTEES.md`: which sentence is held by what, which test dies without it, and how much was tried.
//!
//! The document is made of `tests/guarantees.yaml` and `tests/mutants.yaml`; every name in them is held against the code.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use local::mutants::{self, Mutant};
use muster_tests::World;
use muster_tests::course::Command;
use muster_tests::existing::Existing;
use muster_tests::statements;
use serde_json::Value;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/GUARANTEES.md");
const LIST: &str = include_str!("../../guarantees.yaml");
const HEAD: &str = "\
# Guarantees

What Muster promises, what holds it, and the test that fails without it. The sentences are those of the design: the
invariants, the document on batch aggregation that it follows section by section, and the locking rules. *Held by* names
guarded transactions or keys of the schema; *without it* names mutants of `tests/mutants.yaml`: our own code with just that
taken away, and the tests that must die of it. `make mutants` tries them all.

This file is made by a test from `tests/guarantees.yaml`, and compared with it; change that, not this.
";

#[derive(Debug)]
struct Row {
    says: String,
    how: String,
    by: Vec<String>,
    tests: Vec<String>,
    mutants: Vec<String>,
}

fn sections() -> Vec<(String, Vec<Row>)> {
    let list: Value = serde_yaml_ng::from_str(LIST).expect("a list of sections");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned();
    let texts = |value: &Value| value.as_array().unwrap_or_else(|| panic!("no list: {value}")).iter().map(text).collect();
    let row = |row: &Value| Row {
        says: text(&row["says"]),
        how: text(&row["how"]),
        by: texts(&row["by"]),
        tests: texts(&row["tests"]),
        mutants: texts(&row["mutants"]),
    };
    let section = |section: &Value| (text(&section["about"]), section["rows"].as_array().expect("rows").iter().map(row).collect());
    list.as_array().expect("sections").iter().map(section).collect()
}

/// Every name that a row may give as what holds it.
async fn holders() -> BTreeSet<String> {
    let units = statements::sources().into_iter().flat_map(|(_, source)| {
        let names: Vec<String> =
            source.split("const NAME: &'static str = \"").skip(1).filter_map(|rest| rest.split('"').next().map(str::to_owned)).collect();
        names
    });
    let world = World::empty().await;
    let keys: Vec<String> =
        world.rows("SELECT DISTINCT CONCAT(index_name) FROM information_schema.statistics WHERE table_schema = DATABASE()", ()).await;
    units.chain(keys).collect()
}

#[tokio::test]
async fn every_guarantee_names_what_is_there() {
    let (tests, holders) = (Existing::read(), holders().await);
    let mutants: BTreeSet<String> = mutants::all().expect("the list is of its form").into_iter().map(|one| one.id).collect();
    let mut wrong = Vec::new();
    for (_, rows) in sections() {
        for row in rows {
            wrong.extend(
                row.by.iter().filter(|name| !holders.contains(*name)).map(|name| format!("no transaction or key {name}: {}", row.says)),
            );
            wrong.extend(row.tests.iter().filter(|name| !tests.has(name)).map(|name| format!("no test {name}: {}", row.says)));
            wrong.extend(row.mutants.iter().filter(|id| !mutants.contains(*id)).map(|id| format!("no mutant {id}: {}", row.says)));
            if row.tests.is_empty() || row.by.is_empty() {
                wrong.push(format!("nothing holds or shows it: {}", row.says));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn counts(mutants: &[Mutant]) -> String {
    let equivalent = mutants.iter().filter(|one| one.equivalent.is_some()).count();
    let of_rust = mutants.iter().filter(|one| one.id.starts_with('R')).count();
    let pairs = Command::ALL.len() * Command::OTHERS.len();
    let mut text = String::from("\n## How much is tried\n\n| what | how often |\n|---|---|\n");
    let _ = writeln!(text, "| commands, each in the state in which it has the most to do | {} |", Command::ALL.len());
    let _ = writeln!(text, "| ordered pairs of them, the second run at every statement of the first | {pairs} |");
    let _ = writeln!(text, "| mutants of SQL and of Rust | {} and {of_rust} |", mutants.len() - of_rust);
    let killed = mutants.len() - equivalent;
    let _ =
        writeln!(text, "| mutants that a test must kill, and those that no test can tell from the original | {killed} and {equivalent} |");
    text
}

fn table(mutants: &[Mutant]) -> String {
    let code = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("<br>");
    let mut text = String::new();
    for (about, rows) in sections() {
        let _ = write!(text, "\n## {about}\n\n| guarantee | how | held by | shown by | without it |\n|---|---|---|---|---|\n");
        for row in rows {
            let without: Vec<String> = row
                .mutants
                .iter()
                .filter_map(|id| mutants.iter().find(|one| one.id == *id))
                .map(|one| one.id.clone() + if one.equivalent.is_some() { " (equivalent)" } else { "" })
                .collect();
            let _ = writeln!(text, "| {} | {} | {} | {} | {} |", row.says, row.how, code(&row.by), code(&row.tests), code(&without));
        }
    }
    text
}

#[test]
fn the_document_is_what_is_guaranteed() {
    let mutants = mutants::all().expect("the list is of its form");
    let made = format!("{HEAD}{}{}", table(&mutants), counts(&mutants));
    if std::fs::read_to_string(DOCUMENT).unwrap_or_default() != made {
        let file = std::env::temp_dir().join("GUARANTEES.md");
        std::fs::write(&file, made).expect("a temporary file can be written");
        panic!(
            "docs/GUARANTEES.md is not what tests/guarantees.yaml says; compare it with {} and copy that if it is right",
            file.display()
        );
    }
}
