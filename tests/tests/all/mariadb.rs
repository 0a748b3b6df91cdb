//! Which tests MariaDB is spared, and why: the one list, in .config/nextest.toml, held against the tests.

const CONFIG: &str = include_str!("../../../.config/nextest.toml");
const MODULES: &str = include_str!("main.rs");

#[test]
fn what_mariadb_is_spared_is_there_has_a_reason_and_does_not_grow_unseen() {
    let (comments, profile) = CONFIG.split_once("[profile.mariadb]").expect("the profile of make test-mariadb");
    let spared: Vec<&str> = profile.lines().filter_map(|line| line.trim().strip_prefix("- test(/^")?.strip_suffix("::/)")).collect();
    let exceptions = profile.lines().filter(|line| line.trim_start().starts_with('-')).count();
    assert_eq!(spared.len(), exceptions, "an exception that is not a module of tests");
    let reasons: Vec<&str> =
        comments.lines().filter_map(|line| line.strip_prefix("#   ")?.split_once(": ")).map(|(name, _)| name).collect();
    assert_eq!(spared, reasons, "each exception has its reason, and each reason its exception");
    assert_eq!(spared, ["footprints", "locking_rules"]);
    for name in spared {
        assert!(MODULES.contains(&format!("mod {name};")), "there are no tests called {name}");
    }
}
