//! The tests that there are, by the names that the test runner gives them, read from the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Where each binary's modules begin.
const BINARIES: [&str; 2] = ["tests/tests/all", "shared/src"];

/// Names such as `claim_races::of_64_triggers_in_each_of_five_rounds_one_claims` of the integration tests, and
/// `decide::bisect::tests::…` of `shared`.
#[derive(Debug)]
pub struct Existing(BTreeSet<String>);

impl Existing {
    /// # Panics
    /// When a source cannot be read.
    pub fn read() -> Self {
        let mut names = BTreeSet::new();
        for binary in BINARIES {
            collect(&Path::new(ROOT).join(binary), "", &mut names);
        }
        Self(names)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

fn collect(folder: &Path, module: &str, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            collect(&path, &format!("{module}{stem}::"), names);
            continue;
        }
        let source = fs::read_to_string(&path).expect("a source can be read");
        let module = if ["mod", "lib", "main"].contains(&stem.as_str()) { module.to_owned() } else { format!("{module}{stem}::") };
        let inner = if source.contains("#[cfg(test)]\nmod tests {") { "tests::" } else { "" };
        names.extend(tests_of(&source).into_iter().map(|name| format!("{module}{inner}{name}")));
    }
}

/// Functions behind a `#[test]` or `#[tokio::test…]`; and the names that `each_first!` gives to the tests it makes.
fn tests_of(source: &str) -> Vec<String> {
    let marked = ["#[test]", "#[tokio::test"].into_iter().flat_map(|mark| source.split(mark).skip(1)).filter_map(|rest| {
        let (before, rest) = rest.split_once("fn ")?;
        // Attributes only: anything else belongs to another item.
        (!before.contains('{') && !before.contains(';')).then(|| rest.split('(').next().unwrap_or_default().to_owned())
    });
    let made = source.split("each_first!(").nth(1).into_iter().flat_map(|rest| rest.split(");").next().unwrap_or_default().lines());
    let made = made.filter_map(|line| line.trim().split_once(": ").map(|(name, _)| name.to_owned()));
    marked.chain(made).filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).collect()
}
