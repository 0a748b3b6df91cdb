//! The actions of `POST repository/commits`, applied one after the other to the files of the parent commit.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{
    errors::{ApiError, ApiResult},
    params::Params,
    tree::{Entry, Files},
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Update,
    Delete,
    Move,
    Chmod,
}

struct Action {
    kind: Kind,
    path: String,
    previous: Option<String>,
    content: Option<Vec<u8>>,
    last_commit: Option<String>,
    executable: Option<bool>,
}

/// All actions of a call, checked as far as that needs no repository.
pub(crate) struct Actions(Vec<Action>);

/// What has to change in a tree. Blobs are named by their number in `contents` until they are written.
#[derive(Default)]
pub(crate) struct Changes {
    pub removed: Vec<Vec<u8>>,
    pub kept: Files,
    pub contents: Vec<Vec<u8>>,
    pub new: BTreeMap<Vec<u8>, (String, usize)>,
}

impl Actions {
    pub fn parse(params: &Params) -> ApiResult<Self> {
        let Some(Value::Array(items)) = params.0.get("actions") else {
            return Err(ApiError::parameter("actions is invalid"));
        };
        items.iter().enumerate().map(|(number, item)| parse_one(number, item)).collect::<ApiResult<Vec<_>>>().map(Self)
    }

    /// `(path, last_commit_id)` of the actions that give one.
    pub fn expectations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|action| {
            let path = action.previous.as_deref().unwrap_or(&action.path);
            action.last_commit.as_deref().map(|commit| (path, commit))
        })
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|action| action.path.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies the actions in order to `files`.
    pub fn apply(self, files: &Files) -> ApiResult<Changes> {
        let mut stage = Stage { files: files.clone(), contents: Vec::new() };
        for action in self.0 {
            stage.apply(action)?;
        }
        let mut changes = Changes { contents: stage.contents, ..Changes::default() };
        changes.removed = files.keys().filter(|path| !stage.files.contains_key(*path)).cloned().collect();
        for (path, entry) in stage.files {
            match entry.id.strip_prefix('#') {
                Some(number) => {
                    let number = number.parse().map_err(|_internal| ApiError::bad("an action lost its content"))?;
                    changes.new.insert(path, (entry.mode, number));
                }
                None if files.get(&path) != Some(&entry) => drop(changes.kept.insert(path, entry)),
                None => {}
            }
        }
        Ok(changes)
    }
}

/// The files while actions are applied; an id `#n` stands for new content number n.
struct Stage {
    files: Files,
    contents: Vec<Vec<u8>>,
}

impl Stage {
    fn apply(&mut self, action: Action) -> ApiResult<()> {
        let path = checked_path(&action.path)?;
        let exists = self.files.contains_key(&path);
        match action.kind {
            Kind::Create => {
                self.must_be_free(&path)?;
                let mode = if action.executable == Some(true) { "100755" } else { "100644" };
                let id = self.store(action.content.unwrap_or_default());
                self.files.insert(path, Entry { mode: mode.to_owned(), id });
            }
            Kind::Update | Kind::Chmod | Kind::Delete if !exists => {
                return Err(ApiError::bad("A file with this name doesn't exist"));
            }
            Kind::Update => {
                let id = self.store(action.content.unwrap_or_default());
                if let Some(entry) = self.files.get_mut(&path) {
                    entry.id = id;
                }
            }
            Kind::Chmod => {
                if let Some(entry) = self.files.get_mut(&path) {
                    entry.mode = if action.executable == Some(true) { "100755" } else { "100644" }.to_owned();
                }
            }
            Kind::Delete => drop(self.files.remove(&path)),
            Kind::Move => {
                let previous = checked_path(&action.previous.unwrap_or_default())?;
                let Some(mut entry) = self.files.get(&previous).cloned() else {
                    return Err(ApiError::bad("A file with this name doesn't exist"));
                };
                self.must_be_free(&path)?;
                if let Some(content) = action.content {
                    entry.id = self.store(content);
                }
                self.files.remove(&previous);
                self.files.insert(path, entry);
            }
        }
        Ok(())
    }

    fn store(&mut self, content: Vec<u8>) -> String {
        self.contents.push(content);
        format!("#{}", self.contents.len() - 1)
    }

    fn must_be_free(&self, path: &[u8]) -> ApiResult<()> {
        if self.files.contains_key(path) {
            return Err(ApiError::bad("A file with this name already exists"));
        }
        let folder = [path, b"/"].concat();
        if self.files.range(folder.clone()..).next().is_some_and(|(found, _)| found.starts_with(&folder)) {
            return Err(ApiError::bad("A directory with this name already exists"));
        }
        let parents = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
        if parents.into_iter().any(|parent| self.files.contains_key(parent)) {
            return Err(ApiError::bad("A file with this name already exists"));
        }
        Ok(())
    }
}

fn checked_path(path: &str) -> ApiResult<Vec<u8>> {
    let path = path.trim_start_matches('/');
    if path.is_empty() {
        return Err(ApiError::bad("You must provide a file path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(ApiError::bad("Path cannot include directory traversal"));
    }
    let bad = |part: &str| part.is_empty() || part == "." || part.eq_ignore_ascii_case(".git");
    if path.split('/').any(bad) || path.contains('\0') {
        return Err(ApiError::bad(format!("invalid path: '{path}'")));
    }
    Ok(path.as_bytes().to_vec())
}

fn parse_one(number: usize, item: &Value) -> ApiResult<Action> {
    let text = |name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
    let name = |field: &str| format!("actions[{number}][{field}]");
    let kind = match text("action").as_deref() {
        Some("create") => Kind::Create,
        Some("update") => Kind::Update,
        Some("delete") => Kind::Delete,
        Some("move") => Kind::Move,
        Some("chmod") => Kind::Chmod,
        Some(_) => return Err(ApiError::parameter(format!("{} does not have a valid value", name("action")))),
        None => return Err(ApiError::parameter(format!("{} is missing", name("action")))),
    };
    let Some(path) = text("file_path") else {
        return Err(ApiError::parameter(format!("{} is missing", name("file_path"))));
    };
    let previous = text("previous_path");
    if kind == Kind::Move && previous.is_none() {
        return Err(ApiError::bad("You must provide a previous path"));
    }
    let content = match (text("content"), text("encoding").as_deref()) {
        (None, _) => None,
        (Some(content), None | Some("text")) => Some(content.into_bytes()),
        (Some(content), Some("base64")) => {
            let compact: String = content.split_whitespace().collect();
            let decoded = STANDARD.decode(compact).map_err(|_invalid| ApiError::bad("invalid base64"))?;
            Some(decoded)
        }
        (Some(_), Some(_)) => {
            return Err(ApiError::parameter(format!("{} does not have a valid value", name("encoding"))));
        }
    };
    let executable = item.get("execute_filemode").and_then(Value::as_bool);
    let previous = previous.filter(|_| kind == Kind::Move);
    Ok(Action { kind, path, previous, content, last_commit: text("last_commit_id"), executable })
}
