//! The SQL texts and the units of `shared`, read from its sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TRANSACTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/src/transactions");

#[derive(Debug)]
pub struct Statement {
    pub name: String,
    sql: String,
}

impl Statement {
    /// Does it insert a request, a relationship or a batch, or assign its status?
    pub fn writes_a_state(&self) -> bool {
        let words: Vec<&str> = self.sql.split_whitespace().collect();
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
}

/// Every SQL text of a guarded transaction.
pub fn all() -> Vec<Statement> {
    let mut found = Vec::new();
    for source in sources(Path::new(TRANSACTIONS)) {
        for text in source.split("\"/* ").skip(1) {
            let (name, rest) = text.split_once(" */").expect("the opening comment of a statement ends");
            let sql = rest.split('"').next().unwrap_or_default().replace("\\\n", " ");
            found.push(Statement { name: name.to_owned(), sql });
        }
    }
    assert!(found.len() > 80, "only {} statements were found in {TRANSACTIONS}", found.len());
    found
}

/// Names of all guarded transactions.
pub fn units() -> BTreeSet<String> {
    let names = sources(Path::new(TRANSACTIONS));
    names
        .iter()
        .flat_map(|source| source.split("const NAME: &'static str = \"").skip(1).filter_map(|rest| rest.split('"').next()))
        .map(str::to_owned)
        .collect()
}

fn sources(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the sources are there").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![fs::read_to_string(&path).expect("a source can be read")],
        })
        .collect()
}
