//! What a round changes on the tree it starts from.

use std::collections::BTreeMap;

use sha1::{Digest, Sha1};

use crate::ids::OperationId;
use crate::paths;
use crate::request::{Base, FileChange};
use crate::transactions::record_render::Expelled;

/// A file at the commit the round starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseFile {
    pub blob_id: String,
    /// Known only where a member's `base` asks for it.
    pub sha256: Option<String>,
}

/// One file to be written or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    pub path: String,
    /// `None` deletes it.
    pub content: Option<String>,
    pub exists: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Only what differs from the base: an equal file and an absent one to be deleted are no change.
    pub files: Vec<RenderedFile>,
    pub expelled: Vec<Expelled>,
}

/// Renders the members, in their order, on the base. A member that does not fit is expelled alone.
pub fn render(members: &[(OperationId, Vec<FileChange>)], base: &BTreeMap<String, BaseFile>, allowed_prefixes: &[String]) -> Rendered {
    let mut rendered = Rendered::default();
    for (operation, files) in members {
        if let Some((code, reason)) = files.iter().find_map(|file| misfit(file, base.get(&file.path), allowed_prefixes)) {
            rendered.expelled.push(Expelled { operation: operation.clone(), code, reason });
            continue;
        }
        rendered.files.extend(files.iter().filter_map(|file| difference(file, base.get(&file.path))));
    }
    rendered
}

fn misfit(file: &FileChange, base: Option<&BaseFile>, allowed_prefixes: &[String]) -> Option<(&'static str, String)> {
    let path = &file.path;
    // A deletion was allowed when it was asked for, or undoes a grant: access must stay revocable.
    if file.content.is_some() && !paths::is_allowed(path, allowed_prefixes) {
        return Some(("path_not_allowed", format!("{path:?} lies outside the prefixes that the partition allows by now")));
    }
    match (&file.base, base) {
        (None, _) | (Some(Base::Absent), None) => None,
        (Some(Base::Absent), Some(_)) => Some(("base_mismatch", format!("{path:?} exists, yet its base says that it is absent"))),
        (Some(Base::Sha256(_)), None) => Some(("base_mismatch", format!("{path:?} does not exist, yet its base names a content"))),
        (Some(Base::Sha256(expected)), Some(base)) if base.sha256.as_ref() == Some(expected) => None,
        (Some(Base::Sha256(_)), Some(_)) => Some(("base_mismatch", format!("{path:?} has another content than its base names"))),
    }
}

fn difference(file: &FileChange, base: Option<&BaseFile>) -> Option<RenderedFile> {
    let is_same = match (&file.content, base) {
        (Some(content), Some(base)) => blob_id(content) == base.blob_id,
        (Some(_), None) | (None, Some(_)) => false,
        (None, None) => true,
    };
    (!is_same).then(|| RenderedFile { path: file.path.clone(), content: file.content.clone(), exists: base.is_some() })
}

/// Git's object id of a file's content: SHA-1 over `blob <length>\0<content>`.
pub fn blob_id(content: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", content.len()));
    hash.update(content);
    hex::encode(hash.finalize())
}

/// What the batch leaves behind: each path's blob, or `None` where it must be gone.
pub fn expected_blobs<'a>(files: impl IntoIterator<Item = &'a FileChange>) -> BTreeMap<String, Option<String>> {
    files.into_iter().map(|file| (file.path.clone(), file.content.as_deref().map(blob_id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: Option<&str>, base: Option<Base>) -> FileChange {
        FileChange { path: path.into(), content: content.map(str::to_owned), base }
    }

    fn world(files: Vec<FileChange>) -> Rendered {
        let base = BTreeMap::from([("a/old".to_owned(), BaseFile { blob_id: blob_id("old"), sha256: Some("f".repeat(64)) })]);
        render(&[(OperationId::new(), files)], &base, &["a/".to_owned()])
    }

    #[test]
    fn a_blob_id_is_gits_own() {
        assert_eq!(blob_id(""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id("hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn only_a_difference_is_rendered() {
        assert_eq!(world(vec![file("a/old", Some("old"), None), file("a/gone", None, None)]), Rendered::default());
        let changed = world(vec![file("a/old", None, None), file("a/new", Some("x"), Some(Base::Absent))]);
        assert_eq!(
            changed.files.iter().map(|one| (one.path.as_str(), one.exists)).collect::<Vec<_>>(),
            [("a/old", true), ("a/new", false)]
        );
    }

    #[test]
    fn a_member_that_does_not_fit_is_expelled_with_all_its_files() {
        for misfit in [
            file("b/x", Some("x"), None),
            file("a/old", Some("x"), Some(Base::Absent)),
            file("a/new", Some("x"), Some(Base::Sha256("f".repeat(64)))),
            file("a/old", Some("x"), Some(Base::Sha256("0".repeat(64)))),
        ] {
            let rendered = world(vec![file("a/fine", Some("y"), None), misfit]);
            assert_eq!((rendered.files.len(), rendered.expelled.len()), (0, 1), "{rendered:?}");
        }
        assert_eq!(world(vec![file("a/old", Some("x"), Some(Base::Sha256("f".repeat(64))))]).files.len(), 1);
    }
}
