//! The HTTP API: admits, shows and withdraws requests, and shows batches and what waits.
//!
//! A request's change reaches the waiting set and nothing else: rounds and sweeps do what follows,
//! so an answer never waits for a queue or a forge.

mod answer;
mod batches;
mod caller;
mod post_request;
mod problems;
mod query;
mod requests;
mod route;

use adapters::config::{AdmitConfig, ConfigError, OperatorRule};
use adapters::problem::Problem;
use lambda_http::http::Response;
use lambda_http::{Body, Request};
use shared::ids::Principal;
use shared::{Store, StoreOptions};

use caller::Caller;
use route::Route;

/// What an answer is made from.
#[derive(Clone)]
pub struct AdmitState {
    pub store: Store,
    /// `None`: nobody is an operator.
    pub operators: Option<OperatorRule>,
    /// Whom a caller without an authorizer is taken for. Only ever set on a developer's machine.
    pub dev_principal: Option<Principal>,
    /// An unknown target is refused instead of created.
    pub strict_targets: bool,
}

impl AdmitState {
    /// # Errors
    /// If the database address cannot be used.
    pub fn new(config: AdmitConfig) -> Result<Self, ConfigError> {
        // A sandbox serves one request at a time.
        let options = StoreOptions { connections: 1, ..StoreOptions::new(config.database_url.expose()) };
        let store = Store::new(options).map_err(|problem| ConfigError { problems: vec![problem] })?;
        Ok(Self { store, operators: config.operators, dev_principal: config.dev_principal, strict_targets: config.strict_targets })
    }
}

/// Answers one request.
///
/// # Errors
/// Never: whatever goes wrong is an answer, of type `application/problem+json`.
pub async fn handle(state: &AdmitState, request: Request) -> Result<Response<Body>, lambda_http::Error> {
    let answer = answer_to(state, &request).await.unwrap_or_else(|problem| {
        tracing::info!(event = "problem", problem = problem.kind.name, status = problem.kind.status, detail = problem.detail);
        answer::problem(&problem)
    });
    Ok(answer)
}

async fn answer_to(state: &AdmitState, request: &Request) -> Result<Response<Body>, Problem> {
    let route = Route::of(request)?;
    let caller = Caller::of(state, request)?;
    match route {
        Route::PostRequest => post_request::admit(state, &caller, request).await,
        Route::ListRequests => requests::list(state, &caller, request).await,
        Route::GetRequest(id) => requests::show(state, &caller, &id).await,
        Route::DeleteRequest(id) => requests::withdraw(state, &caller, &id).await,
        Route::ListBatches => batches::list(state, request).await,
        Route::GetBatch(id) => batches::show(state, &caller, &id).await,
        Route::GetStatus => batches::status(state).await,
    }
}
