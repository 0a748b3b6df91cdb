//! Every SQL text of `shared`, read from its sources and put together as the compiler does it.
//!
//! A text opens with its name, `/* claim.take_free_slot */`. It is one literal, or a `concat!` of literals and of macros
//! that are such a `concat!` themselves.

mod reader;

use std::fs;
use std::path::{Path, PathBuf};

use reader::Macros;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const SOURCES: &str = "shared/src";

/// One SQL text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Statement {
    /// `claim.take_free_slot`
    pub name: String,
    /// From the checkout's root.
    pub file: String,
    /// As the server gets it.
    pub sql: String,
}

/// All statements, in the order of their names.
///
/// # Panics
/// When a name is given twice.
pub fn all() -> Vec<Statement> {
    let sources = sources();
    let mut macros = Macros::default();
    for (file, source) in &sources {
        macros.learn(file, source);
    }
    let mut found: Vec<Statement> = Vec::new();
    for (file, source) in &sources {
        for sql in reader::texts(file, source, &macros) {
            let name = sql.strip_prefix("/* ").and_then(|rest| rest.split_once(" */")).map(|(name, _)| name.to_owned());
            found.extend(name.map(|name| Statement { name, file: file.clone(), sql }));
        }
    }
    found.sort();
    let twice = found.windows(2).find(|pair| pair[0].name == pair[1].name);
    assert!(twice.is_none(), "two statements have one name: {twice:#?}");
    found
}

/// Every source of `shared` by its path from the checkout's root.
pub fn sources() -> Vec<(String, String)> {
    let mut files = files_below(Path::new(ROOT).join(SOURCES).as_path());
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(ROOT).expect("below the root").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("a source can be read"))
        })
        .collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the sources are there").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}
