//! `POST /api/graphql`: the blobs of a repository, and an honest error for every other question.

use std::{collections::HashMap, sync::Arc};

use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::{
    app::App,
    errors::ok,
    graphql_query::{Field, Operation, parse},
    params::authorize,
    tree::Listed,
};

/// A page of a GitLab connection; more paths at once are refused.
const MOST_PATHS: usize = 100;

/// Why a query was not answered: GraphQL's `errors`, or a fault of ours.
enum Refusal {
    Query(String),
    Fault(anyhow::Error),
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        Self::Fault(error)
    }
}

type Answer = Result<Value, Refusal>;

fn refuse<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Query(text.into()))
}

pub(crate) async fn answer(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Response {
    if authorize(&app, &headers).is_err() {
        return (StatusCode::UNAUTHORIZED, axum::Json(json!({ "errors": [{ "message": "Invalid token" }] }))).into_response();
    }
    match run(&app, &body).await {
        Ok(data) => ok(json!({ "data": data })),
        Err(Refusal::Query(text)) => ok(json!({ "errors": [{ "message": text }] })),
        Err(Refusal::Fault(error)) => {
            tracing::error!(error = format!("{error:#}"), "the GitLab stand-in failed inside a GraphQL query");
            let body = json!({ "errors": [{ "message": "Internal server error" }] });
            (StatusCode::INTERNAL_SERVER_ERROR, axum::Json(body)).into_response()
        }
    }
}

async fn run(app: &App, body: &[u8]) -> Answer {
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        return refuse("Unexpected end of document");
    };
    let Some(query) = request.get("query").and_then(Value::as_str) else {
        return refuse("No query string was present");
    };
    let operation = parse(query).map_err(Refusal::Query)?;
    let given = request.get("variables").and_then(Value::as_object).cloned().unwrap_or_default();
    let scope = Scope { app, variables: variables(&operation, given)? };
    let mut data = Map::new();
    for field in &operation.fields {
        let value = match field.name.as_str() {
            "project" => scope.project(field).await?,
            "__typename" => json!("Query"),
            other => return no_field(other, "Query"),
        };
        data.insert(field.key().to_owned(), value);
    }
    Ok(Value::Object(data))
}

fn variables(operation: &Operation, given: Map<String, Value>) -> Result<HashMap<String, Value>, Refusal> {
    let mut variables = HashMap::new();
    for declared in &operation.variables {
        match given.get(&declared.name).filter(|value| !value.is_null()) {
            Some(value) => drop(variables.insert(declared.name.clone(), value.clone())),
            None if declared.required => {
                return refuse(format!("Variable ${} of type {} was provided invalid value", declared.name, declared.kind));
            }
            None => drop(variables.insert(declared.name.clone(), Value::Null)),
        }
    }
    Ok(variables)
}

fn no_field<T>(field: &str, kind: &str) -> Result<T, Refusal> {
    refuse(format!("Field '{field}' doesn't exist on type '{kind}'"))
}

struct Scope<'a> {
    app: &'a App,
    variables: HashMap<String, Value>,
}

impl Scope<'_> {
    fn argument(&self, field: &Field, name: &str) -> Result<Option<Value>, Refusal> {
        match field.arguments.get(name) {
            None => Ok(None),
            Some(value) => self.resolve(value).map(Some),
        }
    }

    /// Puts the variables' values in place of their names.
    fn resolve(&self, value: &super::graphql_query::Argument) -> Answer {
        use super::graphql_query::Argument;
        match value {
            Argument::Value(value) => Ok(value.clone()),
            Argument::Variable(name) => match self.variables.get(name) {
                Some(value) => Ok(value.clone()),
                None => refuse(format!("Variable ${name} is used but not declared")),
            },
            Argument::List(items) => items.iter().map(|item| self.resolve(item)).collect::<Result<Vec<_>, _>>().map(Value::Array),
        }
    }

    async fn project(&self, field: &Field) -> Answer {
        let Some(path) = self.argument(field, "fullPath")? else {
            return refuse("Field 'project' is missing required arguments: fullPath");
        };
        let known = path.as_str() == Some(self.app.project.path.as_str());
        let mut data = Map::new();
        for inner in &field.fields {
            let value = match inner.name.as_str() {
                "repository" => self.repository(inner).await?,
                "id" => json!(format!("gid://gitlab/Project/{}", self.app.project.id)),
                "fullPath" => json!(self.app.project.path),
                "__typename" => json!("Project"),
                other => return no_field(other, "Project"),
            };
            data.insert(inner.key().to_owned(), value);
        }
        if data.is_empty() {
            return refuse(
                "Field must have selections (field 'project' returns Project but has no selections. Did you mean 'project { ... }'?)",
            );
        }
        Ok(if known { Value::Object(data) } else { Value::Null })
    }

    async fn repository(&self, field: &Field) -> Answer {
        let mut data = Map::new();
        for inner in &field.fields {
            let value = match inner.name.as_str() {
                "blobs" => self.blobs(inner).await?,
                "rootRef" => json!(self.app.project.target_branch),
                "exists" => json!(true),
                "empty" => json!(false),
                "__typename" => json!("Repository"),
                other => return no_field(other, "Repository"),
            };
            data.insert(inner.key().to_owned(), value);
        }
        Ok(Value::Object(data))
    }

    async fn blobs(&self, field: &Field) -> Answer {
        if let Some(unknown) = field.arguments.keys().find(|name| !["ref", "paths", "first"].contains(&name.as_str())) {
            return refuse(format!("Field 'blobs' doesn't accept argument '{unknown}'"));
        }
        let Some(Value::Array(paths)) = self.argument(field, "paths")? else {
            return refuse("Field 'blobs' is missing required arguments: paths");
        };
        let paths: Vec<&str> = paths.iter().filter_map(Value::as_str).collect();
        if paths.len() > MOST_PATHS {
            return refuse(format!("paths: at most {MOST_PATHS} paths can be asked for at once, {} were given", paths.len()));
        }
        let reference = self.argument(field, "ref")?.and_then(|name| name.as_str().map(str::to_owned));
        let reference = reference.unwrap_or_else(|| "HEAD".to_owned());
        let found = match self.app.repo.commit_of(&reference).await? {
            Some(commit) => self.app.repo.files_at(&commit, &paths).await?,
            None => Vec::new(),
        };
        let mut data = Map::new();
        for inner in &field.fields {
            let value = match inner.name.as_str() {
                "nodes" => self.nodes(inner, &found).await?,
                "__typename" => json!("RepositoryBlobConnection"),
                other => return no_field(other, "RepositoryBlobConnection"),
            };
            data.insert(inner.key().to_owned(), value);
        }
        Ok(Value::Object(data))
    }

    async fn nodes(&self, field: &Field, found: &[Listed]) -> Answer {
        let wants_content = field.fields.iter().any(|inner| ["rawBlob", "rawTextBlob"].contains(&inner.name.as_str()));
        let ids: Vec<String> = if wants_content { found.iter().map(|file| file.id.clone()).collect() } else { Vec::new() };
        let contents = if ids.is_empty() { HashMap::new() } else { self.app.repo.blobs(&ids).await? };
        let mut nodes = Vec::new();
        for file in found {
            let mut node = Map::new();
            for inner in &field.fields {
                let content = || contents.get(&file.id).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                let value = match inner.name.as_str() {
                    "path" => json!(file.path),
                    "name" => json!(file.path.rsplit('/').next()),
                    "oid" | "id" => json!(file.id),
                    "mode" => json!(file.mode),
                    // A BigInt of GitLab's GraphQL is a text.
                    "size" => json!(file.size.unwrap_or(0).to_string()),
                    "rawBlob" | "rawTextBlob" => json!(content()),
                    "__typename" => json!("RepositoryBlob"),
                    other => return no_field(other, "RepositoryBlob"),
                };
                node.insert(inner.key().to_owned(), value);
            }
            nodes.push(Value::Object(node));
        }
        Ok(Value::Array(nodes))
    }
}
