//! Trees and blobs: reading what a commit holds and writing the tree of the next one.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail};

use super::repo::Repo;

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub mode: String,
    pub id: String,
}

impl Entry {
    pub fn file(id: String) -> Self {
        Self { mode: "100644".to_owned(), id }
    }
}

/// The files of a commit by path; paths are bytes, as Git keeps them.
pub(crate) type Files = BTreeMap<Vec<u8>, Entry>;

/// One line of `git ls-tree`.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub mode: String,
    pub kind: String,
    pub id: String,
    /// Bytes of a blob; `None` for a folder.
    pub size: Option<u64>,
    pub path: String,
}

impl Repo {
    pub async fn files(&self, commit: &str) -> Result<Files> {
        let list = self.run(&["ls-tree", "-r", "-z", "--full-tree", commit]).await?;
        let mut files = Files::new();
        for line in list.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let tab = line.iter().position(|byte| *byte == b'\t').context("git ls-tree wrote a line without a tab")?;
            let head = String::from_utf8_lossy(&line[..tab]).into_owned();
            let mut words = head.split(' ');
            let (Some(mode), Some(_kind), Some(id)) = (words.next(), words.next(), words.next()) else {
                bail!("git ls-tree wrote a line that is not mode, kind, id: {head:?}");
            };
            files.insert(line[tab + 1..].to_vec(), Entry { mode: mode.to_owned(), id: id.to_owned() });
        }
        Ok(files)
    }

    /// Lists `git ls-tree -l` with further arguments (options, revision, paths).
    pub async fn list(&self, args: &[&str]) -> Result<Vec<Listed>> {
        let args: Vec<&str> = ["ls-tree", "-z", "-l", "--full-tree"].iter().chain(args).copied().collect();
        let list = self.run(&args).await?;
        let mut listed = Vec::new();
        for line in list.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let line = String::from_utf8_lossy(line);
            let (head, path) = line.split_once('\t').context("git ls-tree wrote a line without a tab")?;
            let words: Vec<&str> = head.split_whitespace().collect();
            let [mode, kind, id, size] = words[..] else { bail!("git ls-tree -l wrote {head:?}") };
            listed.push(Listed {
                mode: mode.to_owned(),
                kind: kind.to_owned(),
                id: id.to_owned(),
                size: size.parse().ok(),
                path: path.to_owned(),
            });
        }
        Ok(listed)
    }

    /// The file at exactly `path`, `None` if there is none or it is a folder.
    pub async fn file_at(&self, commit: &str, path: &str) -> Result<Option<Listed>> {
        Ok(self.files_at(commit, &[path]).await?.pop())
    }

    /// The files at these paths, in the order asked for; paths without a file are left out.
    pub async fn files_at(&self, commit: &str, paths: &[&str]) -> Result<Vec<Listed>> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let args: Vec<&str> = [commit, "--"].iter().chain(paths).copied().collect();
        let listed = self.list(&args).await?;
        let by_path: HashMap<&str, &Listed> =
            listed.iter().filter(|entry| entry.kind == "blob").map(|entry| (entry.path.as_str(), entry)).collect();
        Ok(paths.iter().filter_map(|path| by_path.get(path).map(|found| (*found).clone())).collect())
    }

    /// Contents of blobs by id. All ids must exist.
    pub async fn blobs(&self, ids: &[String]) -> Result<HashMap<String, Vec<u8>>> {
        let request = ids.join("\n") + "\n";
        let answer = self.feed(&["cat-file", "--batch"], request.as_bytes(), &[]).await?;
        let mut rest = answer.as_slice();
        let mut blobs = HashMap::new();
        for wanted in ids {
            let end = rest.iter().position(|byte| *byte == b'\n').context("git cat-file ended too early")?;
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            let size: usize = match head.split(' ').collect::<Vec<_>>()[..] {
                [_, _, size] => size.parse().with_context(|| format!("git cat-file wrote {head:?}"))?,
                _ => bail!("the object {wanted} is not in the repository: {head}"),
            };
            let body = rest.get(end + 1..end + 1 + size).context("git cat-file ended inside a blob")?;
            blobs.insert(wanted.clone(), body.to_vec());
            rest = rest.get(end + 2 + size..).unwrap_or_default();
        }
        Ok(blobs)
    }

    /// Writes blobs and answers their ids in the same order, with two processes however many there are.
    pub async fn write_blobs(&self, contents: &[Vec<u8>]) -> Result<Vec<String>> {
        if contents.is_empty() {
            return Ok(Vec::new());
        }
        if let [one] = contents {
            let id = self.feed(&["hash-object", "-w", "--stdin"], one, &[]).await?;
            return Ok(vec![String::from_utf8_lossy(&id).trim().to_owned()]);
        }
        let folder = tempfile::tempdir_in(self.path()).context("no folder for temporary files could be made")?;
        let mut paths = String::new();
        for (number, content) in contents.iter().enumerate() {
            let path = folder.path().join(number.to_string());
            tokio::fs::write(&path, content).await.with_context(|| format!("cannot write {}", path.display()))?;
            paths.push_str(&path.to_string_lossy());
            paths.push('\n');
        }
        let ids = self.feed(&["hash-object", "-w", "--no-filters", "--stdin-paths"], paths.as_bytes(), &[]).await?;
        let ids: Vec<String> = String::from_utf8_lossy(&ids).lines().map(str::to_owned).collect();
        if ids.len() != contents.len() {
            bail!("git hash-object answered {} ids for {} files", ids.len(), contents.len());
        }
        Ok(ids)
    }

    /// Writes the tree of `base` (`None`: empty) with `removed` taken out and `added` put in, through an index of its own.
    pub async fn write_tree(&self, base: Option<&str>, removed: &[Vec<u8>], added: &Files) -> Result<String> {
        let folder = tempfile::tempdir_in(self.path()).context("no folder for a temporary index could be made")?;
        let index = folder.path().join("index");
        let index = index.to_string_lossy();
        let environment = [("GIT_INDEX_FILE", index.as_ref())];
        if let Some(base) = base {
            self.feed(&["read-tree", base], b"", &environment).await?;
        }
        let mut changes = Vec::new();
        for path in removed {
            changes.extend_from_slice(b"0 0000000000000000000000000000000000000000\t");
            changes.extend_from_slice(path);
            changes.push(0);
        }
        for (path, entry) in added {
            changes.extend_from_slice(format!("{} {}\t", entry.mode, entry.id).as_bytes());
            changes.extend_from_slice(path);
            changes.push(0);
        }
        self.feed(&["update-index", "-z", "--index-info"], &changes, &environment).await?;
        let tree = self.feed(&["write-tree"], b"", &environment).await?;
        Ok(String::from_utf8_lossy(&tree).trim().to_owned())
    }
}
