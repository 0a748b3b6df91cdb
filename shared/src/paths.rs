//! Which files a request may touch.

use std::collections::BTreeSet;

use crate::ids::{SubjectId, TargetKey};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Longest path, in bytes: the width of `request_path.path`.
pub const PATH_BYTES_MAX: usize = 1024;

/// RFC 3986's unreserved characters stay as they are; everything else in an id is encoded.
const ENCODED_IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Files that decide what runs, or who may approve: never by way of a request.
const CONTROL_FILES: [&str; 9] = [
    "codeowners",
    "jenkinsfile",
    ".travis.yml",
    ".drone.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    ".circleci",
    ".woodpecker",
    ".buildkite",
];

/// Checks the form of one path; the error says which rule it breaks.
pub fn check_path(path: &str) -> Result<(), String> {
    let refuse = |rule: &str| Err(format!("path {:?} {rule}", path.chars().take(120).collect::<String>()));
    if path.is_empty() {
        return refuse("is empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return refuse("is longer than 1024 bytes");
    }
    if path.starts_with('/') {
        return refuse("is absolute; give it relative to the root of the repository");
    }
    if path.chars().any(|c| c.is_control() || is_invisible(c)) {
        return refuse("holds a control or invisible character");
    }
    if path.contains('\\') {
        return refuse("holds a backslash");
    }
    for part in path.split('/') {
        let lower = part.to_ascii_lowercase();
        match part {
            "" => return refuse("has an empty component"),
            "." | ".." => return refuse("has a component . or .."),
            _ if part.ends_with(' ') || part.ends_with('.') => return refuse("has a component that ends with a space or a dot"),
            _ if lower.starts_with(".git") || lower.starts_with("git~") => return refuse("has a component that begins with .git"),
            _ if CONTROL_FILES.contains(&lower.as_str()) => return refuse("names a file that decides what runs or who approves"),
            _ => {}
        }
    }
    Ok(())
}

/// Characters that make two paths look alike, or one name read as another.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{00ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Is the path below one of the prefixes? A prefix ends with `/`, or is empty and allows everything.
pub fn is_allowed(path: &str, prefixes: &[String]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix.as_str()))
}

/// Checks a prefix as an operator gives it.
pub fn check_prefix(prefix: &str) -> Result<(), String> {
    match prefix.strip_suffix('/') {
        _ if prefix.is_empty() => Ok(()),
        Some(folder) => check_path(folder).map_err(|why| format!("allowed prefix {prefix:?}: {why}")),
        None => Err(format!("allowed prefix {prefix:?} does not end with /; it would also allow {prefix}-other/")),
    }
}

/// The path of a request without `change`: the template with both ids percent-encoded.
pub fn from_template(template: &str, subject: &SubjectId, target: &TargetKey) -> String {
    // One pass over the template: an id that spells a placeholder is not expanded again.
    let mut path = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        path.push_str(&rest[..at]);
        rest = &rest[at..];
        let id = [("{subject_id}", subject.as_str()), ("{target_key}", target.as_str())];
        match id.into_iter().find(|(mark, _)| rest.starts_with(mark)) {
            Some((mark, value)) => {
                path.extend(utf8_percent_encode(value, ENCODED_IN_PATHS));
                rest = &rest[mark.len()..];
            }
            None => {
                path.push('{');
                rest = &rest[1..];
            }
        }
    }
    path.push_str(rest);
    path
}

/// Paths with every folder above them. Two paths touch when they are equal, or one is a folder of the other.
#[derive(Debug, Default)]
pub struct PathSet {
    paths: BTreeSet<String>,
    folders: BTreeSet<String>,
}

impl PathSet {
    /// Does the path touch one of the set?
    pub fn touches(&self, path: &str) -> bool {
        self.paths.contains(path) || self.folders.contains(path) || folders_above(path).any(|folder| self.paths.contains(folder))
    }

    pub fn insert(&mut self, path: &str) {
        self.folders.extend(folders_above(path).map(str::to_owned));
        self.paths.insert(path.to_owned());
    }
}

fn folders_above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_paths_are_refused() {
        for bad in [
            "",
            "/etc/passwd",
            "a//b",
            "a/",
            "../x",
            "a/../b",
            "./a",
            ".gitlab-ci.yml",
            "a/.GIT/config",
            "access/.gitattributes",
            "CODEOWNERS",
            "docs/codeowners",
            "Jenkinsfile",
            "a\nb",
            "a\u{0}b",
            "a\\b",
            "a\u{202e}b",
            ".g\u{200b}it/x",
            "git~1/x",
            "a /b",
            "a./b",
            &"x".repeat(1025),
        ] {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
        for good in ["access/a.json", "a", "a-b/c_d/e.yaml", "größe/x.json", "a/..b/c"] {
            assert_eq!(check_path(good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn an_id_is_one_component_of_the_path() {
        let subject = SubjectId::parse("team/ops@x:1+2").expect("valid");
        let target = TargetKey::parse("{subject_id}".replace(['{', '}'], "")).expect("valid");
        assert_eq!(
            from_template("access/{target_key}/{subject_id}.json", &subject, &target),
            "access/subject_id/team%2Fops%40x%3A1%2B2.json"
        );
        assert_eq!(from_template("{x}/{subject_id}", &subject, &target), "{x}/team%2Fops%40x%3A1%2B2");
    }

    #[test]
    fn paths_touch_when_equal_or_nested() {
        let touches = |a: &str, b: &str| {
            let mut set = PathSet::default();
            set.insert(a);
            set.touches(b)
        };
        assert!(touches("a/b", "a/b") && touches("a", "a/b") && touches("a/b/c", "a/b"));
        assert!(!touches("a/b", "a/bc") && !touches("a/b", "a/c") && !touches("a/b", "b"));
    }

    #[test]
    fn a_prefix_names_a_folder() {
        assert!(check_prefix("access").is_err() && check_prefix("/a/").is_err() && check_prefix("../").is_err());
        assert!(check_prefix("access/").is_ok() && check_prefix("").is_ok());
        assert!(is_allowed("access/x", &["access/".into()]) && !is_allowed("accessx/x", &["access/".into()]));
    }
}
