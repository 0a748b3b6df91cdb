//! The SQL texts of the guarded transactions that write a state, and the units they belong to.

use std::collections::BTreeSet;

use muster_tests::statements::{self, Statement};

const TRANSACTIONS: &str = "shared/src/transactions/";

/// Does it insert a request, a relationship or a batch, or assign its status?
pub fn writes_a_state(statement: &Statement) -> bool {
    let (_, sql) = statement.sql.split_once("*/").expect("a text opens with its name");
    let words: Vec<&str> = sql.split_whitespace().collect();
    let of = |word: &str| ["operation", "binding", "merge_batch"].contains(&word);
    if let ["INSERT", "INTO", table, ..] = words[..] {
        return of(table);
    }
    if words.first() != Some(&"UPDATE") {
        return false;
    }
    let condition = words.iter().position(|word| *word == "WHERE").unwrap_or(words.len());
    // The last one: a column of a JSON_TABLE has a CHARACTER SET.
    let set = words[..condition].iter().rposition(|word| *word == "SET").expect("an UPDATE sets something");
    let assigns = words[set..condition].windows(2).any(|pair| pair[0].rsplit('.').next() == Some("status") && pair[1] == "=");
    assigns && words[..set].iter().any(|word| of(word))
}

/// Every SQL text of a guarded transaction.
pub fn all() -> Vec<Statement> {
    let found: Vec<Statement> = statements::all().into_iter().filter(|one| one.file.starts_with(TRANSACTIONS)).collect();
    assert!(found.len() > 80, "only {} statements were found in {TRANSACTIONS}", found.len());
    found
}

/// Names of all guarded transactions.
pub fn units() -> BTreeSet<String> {
    let sources = statements::sources();
    sources
        .iter()
        .filter(|(file, _)| file.starts_with(TRANSACTIONS))
        .flat_map(|(_, source)| source.split("const NAME: &'static str = \"").skip(1).filter_map(|rest| rest.split('"').next()))
        .map(str::to_owned)
        .collect()
}
