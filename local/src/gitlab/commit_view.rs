//! Commits as the API shows them, read by `git log`.

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use super::app::App;

/// Fields of one commit, each ended by NUL: a field cannot hold that byte.
const FORMAT: &str = "--format=tformat:%H%x00%P%x00%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI%x00%s%x00%B%x00%(trailers:only,unfold)";
const FIELDS: usize = 11;

/// The commits that `git log` with these arguments lists.
pub(crate) async fn log(app: &App, args: &[&str]) -> Result<Vec<Value>> {
    let args: Vec<&str> = ["log", "-z", FORMAT].iter().chain(args).copied().collect();
    let output = app.repo.run(&args).await?;
    let output = String::from_utf8_lossy(&output);
    let fields: Vec<&str> = output.strip_suffix('\0').map_or_else(Vec::new, |all| all.split('\0').collect());
    if !fields.len().is_multiple_of(FIELDS) {
        bail!("git log wrote {} fields, not a multiple of {FIELDS}", fields.len());
    }
    Ok(fields.chunks(FIELDS).map(|fields| view(app, fields)).collect())
}

/// One commit, which must exist.
pub(crate) async fn commit(app: &App, id: &str) -> Result<Value> {
    match log(app, &["-1", id, "--"]).await?.pop() {
        Some(commit) => Ok(commit),
        None => bail!("git log shows no commit {id}"),
    }
}

fn view(app: &App, fields: &[&str]) -> Value {
    let [id, parents, author, author_email, authored, committer, committer_email, committed, title, message, trailers] = fields else {
        return Value::Null;
    };
    let (mut last, mut all) = (Map::new(), Map::<String, Value>::new());
    for (name, value) in trailers.lines().filter_map(|line| line.split_once(": ")) {
        last.insert(name.to_owned(), json!(value));
        if let Value::Array(values) = all.entry(name).or_insert_with(|| json!([])) {
            values.push(json!(value));
        }
    }
    json!({
        "id": id,
        "short_id": id.get(..8),
        "created_at": committed,
        "parent_ids": parents.split_whitespace().collect::<Vec<_>>(),
        "title": title,
        "message": message,
        "author_name": author,
        "author_email": author_email,
        "authored_date": authored,
        "committer_name": committer,
        "committer_email": committer_email,
        "committed_date": committed,
        "trailers": last,
        "extended_trailers": all,
        "web_url": format!("{}/-/commit/{id}", app.web_url()),
    })
}

/// Lines added and deleted by a commit against its first parent.
pub(crate) async fn stats(app: &App, id: &str) -> Result<Value> {
    let list = app.repo.text(&["diff-tree", "--root", "--numstat", "--no-commit-id", "-r", "-m", "--first-parent", id]).await?;
    let (mut added, mut deleted) = (0_u64, 0_u64);
    for line in list.lines() {
        let mut numbers = line.split('\t').map(|word| word.parse::<u64>().unwrap_or(0));
        added += numbers.next().unwrap_or(0);
        deleted += numbers.next().unwrap_or(0);
    }
    Ok(json!({ "additions": added, "deletions": deleted, "total": added + deleted }))
}
