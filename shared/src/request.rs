//! A request as a caller sends it, checked and made canonical.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::ids::{SubjectId, TargetKey};
use crate::moment::Moment;
use crate::paths;
use crate::state::Action;

/// Largest body of one request, in bytes.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// Highest priority; each step moves a request five minutes ahead, so overtaking is bounded at 45 minutes.
pub const PRIORITY_MAX: u8 = 9;
/// Files of one request: what a round reads and asks the forge for grows with them.
pub const FILES_MAX: usize = 50;
/// Longest `approval_ref`, in characters.
const APPROVAL_REF_MAX: usize = 255;

/// The body of `POST /requests`, as serde reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    subject_id: String,
    target_key: String,
    action: Action,
    #[serde(default)]
    expires_at: Option<String>,
    #[serde(default)]
    attributes: Option<Map<String, Value>>,
    #[serde(default)]
    approval_ref: Option<String>,
    #[serde(default)]
    change: Option<BodyChange>,
    #[serde(default)]
    priority: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyChange {
    files: Vec<BodyFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyFile {
    path: String,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    delete: bool,
    #[serde(default)]
    base: Option<String>,
}

/// One file of a request's change, as `operation_content` keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    pub path: String,
    /// The whole new content; `None` deletes the file.
    pub content: Option<String>,
    /// What the file must be on the target branch when the round is rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    Absent,
    /// Lower-case hex SHA-256 of the content.
    Sha256(String),
}

/// A request whose form is right. What only the database knows is checked by `admit`.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub subject: SubjectId,
    pub target: TargetKey,
    pub action: Action,
    pub expires_at: Option<Moment>,
    pub attributes: Map<String, Value>,
    pub approval_ref: Option<String>,
    /// `None`: the template's one file for a grant, the granted files for a revoke.
    pub change: Option<Vec<FileChange>>,
    pub priority: u8,
    /// Size of the body, in bytes.
    pub bytes: usize,
}

impl Request {
    /// Reads a body. The error lists everything that is wrong with it, one sentence each.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<String>> {
        if body.is_empty() {
            return Err(vec!["the body is empty; send a JSON object with subject_id, target_key and action".into()]);
        }
        let parsed: Body = serde_json::from_slice(body).map_err(|why| vec![format!("the body is not a request: {why}")])?;
        let mut problems = Vec::new();
        let subject = keep(&mut problems, SubjectId::parse(parsed.subject_id).map_err(|why| why.to_string()));
        let target = keep(&mut problems, TargetKey::parse(parsed.target_key).map_err(|why| why.to_string()));
        let expires_at =
            parsed.expires_at.and_then(|text| keep(&mut problems, Moment::parse(&text).map_err(|why| format!("expires_at {why}"))));
        if parsed.priority > PRIORITY_MAX {
            problems.push(format!("priority {} is not one of 0 to {PRIORITY_MAX}", parsed.priority));
        }
        if parsed.approval_ref.as_ref().is_some_and(|text| text.chars().count() > APPROVAL_REF_MAX || text.chars().any(char::is_control)) {
            problems.push(format!("approval_ref is longer than {APPROVAL_REF_MAX} characters or holds a control character"));
        }
        let change = parsed.change.map(|change| check_files(&mut problems, change.files));
        if expires_at.is_some() {
            if parsed.action == Action::Revoke {
                problems.push("expires_at is for a grant; a revoke takes effect when it is merged".into());
            }
            let creates_only = change.as_ref().is_none_or(|files| files.iter().all(|file| file.base == Some(Base::Absent)));
            if !creates_only {
                problems.push(
                    "expires_at needs a change whose files all have \"base\": \"absent\", for at the expiry the files are deleted again"
                        .into(),
                );
            }
        }
        match (subject, target) {
            (Some(subject), Some(target)) if problems.is_empty() => Ok(Self {
                subject,
                target,
                action: parsed.action,
                expires_at,
                attributes: parsed.attributes.unwrap_or_default(),
                approval_ref: parsed.approval_ref,
                change,
                priority: parsed.priority,
                bytes: body.len(),
            }),
            _ => Err(problems),
        }
    }

    /// The revoke that Muster itself admits when a grant has expired.
    pub fn expiry_revoke(subject: SubjectId, target: TargetKey) -> Self {
        Self {
            subject,
            target,
            action: Action::Revoke,
            expires_at: None,
            attributes: Map::new(),
            approval_ref: None,
            change: None,
            priority: 0,
            bytes: 0,
        }
    }

    /// SHA-256 of the canonical command with its defaults filled: the same for bodies that differ only
    /// in spelling, order of members or omitted defaults.
    pub fn payload_hash(&self) -> [u8; 32] {
        let command = serde_json::json!({
            "subject_id": self.subject, "target_key": self.target, "action": self.action.name(), "expires_at": self.expires_at,
            "attributes": self.attributes, "approval_ref": self.approval_ref, "change": self.change, "priority": self.priority,
        });
        let mut text = String::new();
        write_canonical(&command, &mut text);
        Sha256::digest(text.as_bytes()).into()
    }

    /// The file of a grant without `change`: pretty JSON that ends with a line break.
    pub fn template_file(&self) -> String {
        let mut file = Map::new();
        file.insert("subject_id".into(), self.subject.as_str().into());
        file.insert("target_key".into(), self.target.as_str().into());
        file.insert("attributes".into(), Value::Object(self.attributes.clone()));
        if let Some(expires_at) = self.expires_at {
            file.insert("expires_at".into(), expires_at.to_rfc3339().into());
        }
        let mut text = serde_json::to_string_pretty(&Value::Object(file)).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn keep<T>(problems: &mut Vec<String>, value: Result<T, String>) -> Option<T> {
    value.map_err(|why| problems.push(why)).ok()
}

fn check_files(problems: &mut Vec<String>, files: Vec<BodyFile>) -> Vec<FileChange> {
    if files.len() > FILES_MAX {
        problems.push(format!("change.files names {} files and a request takes {FILES_MAX}; split it into several requests", files.len()));
        return Vec::new();
    }
    if files.is_empty() {
        problems.push("change.files is empty; leave change out, or name at least one file".into());
    }
    let mut checked: Vec<FileChange> = Vec::with_capacity(files.len());
    for file in files {
        if let Err(why) = paths::check_path(&file.path) {
            problems.push(why);
        }
        let base = file.base.and_then(|base| keep(problems, check_base(&file.path, base)));
        let content = match (file.content, file.delete) {
            (Some(content), false) => Some(content),
            (None, true) => None,
            _ => {
                problems.push(format!("file {:?} needs either \"content\" or \"delete\": true", file.path));
                None
            }
        };
        if content.is_none() && base == Some(Base::Absent) {
            problems.push(format!("file {:?} is to be deleted, yet its base says that it is absent", file.path));
        }
        checked.push(FileChange { path: file.path, content, base });
    }
    // Sorted, so that the order in which files are sent does not make another request.
    checked.sort_by(|a, b| a.path.cmp(&b.path));
    let mut set = paths::PathSet::default();
    for file in &checked {
        if set.touches(&file.path) {
            problems.push(format!("file {:?} is named twice, or lies under another file of the change", file.path));
        }
        set.insert(&file.path);
    }
    checked
}

fn check_base(path: &str, base: String) -> Result<Base, String> {
    if base == "absent" {
        return Ok(Base::Absent);
    }
    let is_hash = base.len() == 64 && base.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if is_hash {
        Ok(Base::Sha256(base))
    } else {
        Err(format!("base of file {path:?} is neither \"absent\" nor 64 lower-case hex digits of a SHA-256"))
    }
}

/// JSON with sorted members and no white space, whatever the map type underneath keeps.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_str());
            out.push('{');
            for (at, (name, member)) in sorted.into_iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                let _ = write!(out, "{comma}{}:", Value::from(name.as_str()));
                write_canonical(member, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(body: &str) -> Vec<String> {
        Request::parse(body.as_bytes()).expect_err("a problem")
    }

    #[test]
    fn spelling_does_not_make_another_request() {
        let a = Request::parse(br#"{"subject_id":"a","target_key":"t","action":"grant","attributes":{"x":1,"y":{"b":2,"a":3}}}"#)
            .expect("valid");
        let b = Request::parse(
            br#"{ "priority":0, "attributes":{"y":{"a":3,"b":2},"x":1}, "action":"grant","target_key":"t","subject_id":"a"}"#,
        )
        .expect("valid");
        let c = Request::parse(br#"{"subject_id":"a","target_key":"t","action":"grant","attributes":{"x":2}}"#).expect("valid");
        assert_eq!(a.payload_hash(), b.payload_hash());
        assert_ne!(a.payload_hash(), c.payload_hash());
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let all = problems_of(
            r#"{"subject_id":"a b","target_key":"..","action":"grant","expires_at":"soon","priority":10,"change":{"files":[{"path":"/x","content":"","base":"no"}]}}"#,
        );
        assert_eq!(all.len(), 6, "{all:#?}");
    }

    #[test]
    fn forms_that_contradict_themselves_are_refused() {
        for bad in [
            "",
            "[]",
            "null",
            "{",
            r#"{"subject_id":"a","target_key":"t","action":"delete"}"#,
            r#"{"subject_id":"a","target_key":"t","action":"grant","extra":1}"#,
            r#"{"subject_id":"a","target_key":"t","action":"grant","change":{"files":[]}}"#,
            r#"{"subject_id":"a","target_key":"t","action":"grant","change":{"files":[{"path":"x"}]}}"#,
            r#"{"subject_id":"a","target_key":"t","action":"grant","change":{"files":[{"path":"x","content":"","delete":true}]}}"#,
            r#"{"subject_id":"a","target_key":"t","action":"grant","change":{"files":[{"path":"x","content":""},{"path":"x/y","content":""}]}}"#,
            r#"{"subject_id":"a","target_key":"t","action":"revoke","expires_at":"2030-01-01T00:00:00Z"}"#,
            r#"{"subject_id":"a","target_key":"t","action":"grant","expires_at":"2030-01-01T00:00:00Z","change":{"files":[{"path":"x","content":""}]}}"#,
        ] {
            problems_of(bad);
        }
    }
}
