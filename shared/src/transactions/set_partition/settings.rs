//! The settings of a partition as an operator gives them, checked as a whole.

use crate::ids::{BRANCH_ROOT, SubjectId, TargetKey};
use crate::paths;
use crate::transactions::set_partition::limits::{Limits, LimitsWish};

const PROJECT_MAX: usize = 255;
const BRANCH_MAX: usize = 255;
const TEMPLATE_MAX: usize = 512;
/// Prefixes of one partition, at most.
const PREFIXES_MAX: usize = 100;
/// Longest id; `@` takes three bytes in a path.
const LONGEST_ID: usize = 128;

/// What a partition is to be like. Left out: it stays as it is; in a new partition only `project_id`,
/// `limits` and `closed` may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionWish {
    pub project: Option<String>,
    pub target_branch: Option<String>,
    /// Holds `{subject_id}` and `{target_key}`.
    pub path_template: Option<String>,
    pub allowed_prefixes: Option<Vec<String>>,
    pub limits: LimitsWish,
    /// The forge's number of the project, from preflight.
    pub project_id: Option<u64>,
    pub closed: Option<bool>,
}

/// What a partition is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub project: String,
    pub target_branch: String,
    pub project_id: Option<u64>,
    pub path_template: String,
    pub allowed_prefixes: Vec<String>,
    pub limits: Limits,
    pub closed: bool,
}

impl PartitionWish {
    /// The settings as they would be. The error lists everything that is wrong with them, one sentence each.
    pub fn over(&self, current: Option<&Settings>) -> Result<Settings, Vec<String>> {
        let mut problems = Vec::new();
        let project = needed(&mut problems, "project", &self.project, current.map(|now| &now.project));
        let target_branch = needed(&mut problems, "target_branch", &self.target_branch, current.map(|now| &now.target_branch));
        let path_template = needed(&mut problems, "path_template", &self.path_template, current.map(|now| &now.path_template));
        let allowed_prefixes = needed(&mut problems, "allowed_prefixes", &self.allowed_prefixes, current.map(|now| &now.allowed_prefixes));
        let limits = self.limits.over(&current.map_or_else(Limits::default, |now| now.limits));
        problems.extend(project.as_deref().and_then(wrong_project));
        problems.extend(target_branch.as_deref().and_then(wrong_branch));
        problems.extend(allowed_prefixes.as_deref().map(wrong_prefixes).unwrap_or_default());
        if let Some(template) = &path_template {
            problems.extend(wrong_template(template, allowed_prefixes.as_deref().unwrap_or_default()));
        }
        problems.extend(limits.problems());
        if self.project_id == Some(0) {
            problems.push("project_id 0 is not a number that a forge gives".into());
        }
        match (project, target_branch, path_template, allowed_prefixes) {
            (Some(project), Some(target_branch), Some(path_template), Some(allowed_prefixes)) if problems.is_empty() => {
                // A number belongs to the project that was asked for it, not to the next one.
                let kept_id = current.filter(|now| now.project == project).and_then(|now| now.project_id);
                let closed = self.closed.unwrap_or_else(|| current.is_some_and(|now| now.closed));
                let project_id = self.project_id.or(kept_id);
                Ok(Settings { project, target_branch, project_id, path_template, allowed_prefixes, limits, closed })
            }
            _ => Err(problems),
        }
    }
}

/// What is wished for, else what there is, else a problem.
fn needed<T: Clone>(problems: &mut Vec<String>, name: &str, wish: &Option<T>, now: Option<&T>) -> Option<T> {
    let value = wish.as_ref().or(now).cloned();
    if value.is_none() {
        problems.push(format!("{name} is missing; a new partition needs it"));
    }
    value
}

fn wrong_project(project: &str) -> Option<String> {
    let is_component = |part: &str| {
        part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
            && part.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !part.ends_with(['.', '-'])
            && !part.ends_with(".git")
    };
    let valid = project.len() <= PROJECT_MAX && project.contains('/') && project.split('/').all(is_component);
    (!valid).then(|| {
        format!(
            "project {:?} is not the path of a project, such as acme/access: at most {PROJECT_MAX} characters, without host or .git",
            cut(project)
        )
    })
}

/// Git's own rules for the name of a branch, and none of ours.
fn wrong_branch(branch: &str) -> Option<String> {
    let is_component = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let valid = (1..=BRANCH_MAX).contains(&branch.len())
        && branch.bytes().all(|b| (b'!'..=b'~').contains(&b) && !b"~^:?*[\\".contains(&b))
        && !branch.starts_with('-')
        && !branch.ends_with('.')
        && !branch.contains("..")
        && !branch.contains("@{")
        && branch != "@"
        && branch.split('/').all(is_component);
    if !valid {
        return Some(format!("target_branch {:?} is not the name of a branch, such as main", cut(branch)));
    }
    branch
        .starts_with(BRANCH_ROOT)
        .then(|| format!("target_branch {branch:?} lies below {BRANCH_ROOT}, where Muster makes its own branches"))
}

fn wrong_prefixes(prefixes: &[String]) -> Vec<String> {
    let mut problems: Vec<String> = prefixes.iter().filter_map(|prefix| paths::check_prefix(prefix).err()).collect();
    if prefixes.is_empty() {
        problems
            .push("allowed_prefixes is empty, so that no request could write anything; give at least one, such as [\"access/\"]".into());
    }
    if prefixes.len() > PREFIXES_MAX {
        problems.push(format!("allowed_prefixes holds {} prefixes; at most {PREFIXES_MAX} are kept", prefixes.len()));
    }
    problems
}

fn wrong_template(template: &str, prefixes: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |wrong: bool, sentence: String| {
        if wrong {
            problems.push(sentence);
        }
    };
    let shown = cut(template);
    check(
        template.len() > TEMPLATE_MAX || !template.is_ascii(),
        format!("path_template {shown:?} is longer than {TEMPLATE_MAX} characters or not ASCII"),
    );
    for mark in ["{subject_id}", "{target_key}"] {
        check(!template.contains(mark), format!("path_template {shown:?} lacks {mark}, so that two requests would write the same file"));
    }
    let literal = template.replace("{subject_id}", "").replace("{target_key}", "");
    check(
        literal.contains(['{', '}']),
        format!("path_template {shown:?} holds a brace that belongs to neither {{subject_id}} nor {{target_key}}"),
    );
    for id in ["a".to_owned(), "@".repeat(LONGEST_ID)] {
        if let (Ok(subject), Ok(target)) = (SubjectId::parse(id.as_str()), TargetKey::parse(id.as_str()))
            && let Err(why) = paths::check_path(&paths::from_template(template, &subject, &target))
        {
            check(true, format!("path_template {shown:?} makes a path that no request may write: {why}"));
            break;
        }
    }
    // An encoded id holds no slash, so the text before the first id decides what the path lies below.
    let head = template.split('{').next().unwrap_or_default();
    check(
        !prefixes.is_empty() && !paths::is_allowed(head, prefixes),
        format!("path_template {shown:?} does not lie below any of the allowed_prefixes {prefixes:?}"),
    );
    problems
}

fn cut(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn wish() -> PartitionWish {
        PartitionWish {
            project: Some("acme/access".into()),
            target_branch: Some("main".into()),
            path_template: Some("access/{target_key}/{subject_id}.json".into()),
            allowed_prefixes: Some(vec!["access/".into()]),
            ..PartitionWish::default()
        }
    }

    #[test]
    fn a_new_partition_takes_defaults_and_an_old_one_keeps_what_is_left_out() {
        let settings = wish().over(None).unwrap();
        assert_eq!((settings.limits, settings.closed, settings.project_id), (Limits::default(), false, None));
        let known = Settings { project_id: Some(7), ..settings };
        assert_eq!(PartitionWish::default().over(Some(&known)).unwrap(), known);
        let moved = PartitionWish { project: Some("acme/other".into()), ..PartitionWish::default() }.over(Some(&known)).unwrap();
        assert_eq!(moved.project_id, None, "the number of another project");
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let bad = PartitionWish {
            project: Some("https://forge/acme".into()),
            target_branch: Some("muster/x".into()),
            path_template: Some("files/{subject_id}{x}".into()),
            allowed_prefixes: Some(vec!["access".into(), "/etc/".into()]),
            limits: LimitsWish { max_requests: Some(5_000), ..LimitsWish::default() },
            ..PartitionWish::default()
        };
        let problems = bad.over(None).unwrap_err().join("\n");
        for part in [
            "project \"https",
            "below muster/",
            "lacks {target_key}",
            "a brace",
            "not lie below",
            "does not end with /",
            "absolute",
            "max_requests 5000",
        ] {
            assert!(problems.contains(part), "{part}\n{problems}");
        }
        let missing = PartitionWish::default().over(None).unwrap_err();
        assert_eq!(missing.len(), 4, "{missing:?}");
    }

    #[test]
    fn forms_are_those_of_git_and_the_forge() {
        for bad in ["", "-x", "a..b", "a b", "a.lock", "a/.b", "a/", "/a", "a~1", "@", "a@{1}", "ä", "x."] {
            assert!(wrong_branch(bad).is_some(), "{bad:?}");
        }
        for good in ["main", "release/2.x", "feature-1", "a@b"] {
            assert_eq!(wrong_branch(good), None);
        }
        for bad in ["", "acme", "acme/", "/acme/x", "acme//x", "acme/x.git", "acme/x y", "../x", "acme/-x"] {
            assert!(wrong_project(bad).is_some(), "{bad:?}");
        }
        assert_eq!(wrong_project("acme/platform/access.v2"), None);
        let long = format!("access/{}/{{subject_id}}/{{target_key}}", "x".repeat(300));
        assert!(wrong_template(&long, &["access/".into()])[0].contains("longer than 1024 bytes"));
        assert_eq!(wrong_template("{target_key}/{subject_id}.json", &[String::new()]), Vec::<String>::new());
    }
}
