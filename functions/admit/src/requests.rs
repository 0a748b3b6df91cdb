//! `GET /requests`, `GET` and `DELETE /requests/{operation_id}`.

use adapters::problem::Problem;
use lambda_http::http::{Response, StatusCode};
use lambda_http::{Body, Request};
use serde_json::json;
use shared::ids::{OperationId, SubjectId, TargetKey};
use shared::read::requests::{self as read, RequestFilter, RequestView};
use shared::read::view::{Listed, Page};
use shared::state::OperationStatus;
use shared::transactions::withdraw::{WaitingEnd, Withdraw, WithdrawOutcome};

use crate::caller::Caller;
use crate::query::{self, Query};
use crate::{AdmitState, answer, problems};

pub(crate) async fn list(state: &AdmitState, caller: &Caller, request: &Request) -> Result<Response<Body>, Problem> {
    let mut query = Query::of(request, &["subject", "target", "status", "cursor", "limit"]);
    let names: Vec<_> = OperationStatus::ALL.iter().map(|status| status.name()).collect();
    let filter = RequestFilter {
        requested_by: caller.only_own(),
        subject: query.optional("subject", |text| SubjectId::parse(text).map_err(|why| why.to_string())),
        target: query.optional("target", |text| TargetKey::parse(text).map_err(|why| why.to_string())),
        status: query.optional("status", |text| query::state(text, OperationStatus::from_name, &names)),
    };
    let after = query.optional("cursor", |text| OperationId::parse(text).map_err(|why| why.to_string()));
    let page = Page { after, limit: query.limit() };
    query.end()?;
    let Listed { items, next_cursor } = read::requests(&state.store, &filter, &page).await.map_err(|error| problems::store(&error))?;
    answer::json(StatusCode::OK, &json!({ "requests": items, "next_cursor": next_cursor }))
}

pub(crate) async fn show(state: &AdmitState, caller: &Caller, id: &str) -> Result<Response<Body>, Problem> {
    let operation = own(state, caller, id).await?;
    let request = current(state, &operation).await?;
    answer::json(StatusCode::OK, &request)
}

/// Takes a request back: at once while it waits, else as soon as its batch or its failure allows.
pub(crate) async fn withdraw(state: &AdmitState, caller: &Caller, id: &str) -> Result<Response<Body>, Problem> {
    let operation = own(state, caller, id).await?;
    let unit = Withdraw { operation: operation.clone(), actor: caller.principal.clone(), ending: WaitingEnd::Withdrawn };
    let outcome = state.store.run(&unit).await.map_err(|error| problems::store(&error))?;
    let (code, status) = match outcome {
        WithdrawOutcome::Withdrawn => (StatusCode::OK, OperationStatus::Withdrawn),
        WithdrawOutcome::Noted { status } => (StatusCode::ACCEPTED, status),
        WithdrawOutcome::Ended { status } => {
            return Err(problems::REQUEST_ENDED
                .because(format!("the request is {status} and stays so; to undo a merged grant, revoke it"))
                .with("request", json!({ "operation_id": operation, "status": status })));
        }
        WithdrawOutcome::OperatorsOnly => {
            return Err(problems::OPERATORS_ONLY
                .because(
                    "the revoke is FAILED, so the access is still there; an operator recovers or closes it by the action recover of ops",
                )
                .with("request", json!({ "operation_id": operation, "status": OperationStatus::Failed })));
        }
        WithdrawOutcome::Unknown => return Err(problems::not_found(&format!("request {operation}"))),
        WithdrawOutcome::Preempted => return Err(problems::try_again("the request changed in between")),
    };
    // Withdrawn it is, even if the database cannot be asked what it looks like now.
    let body = match current(state, &operation).await {
        Ok(request) => json!(request),
        Err(_) => json!({ "operation_id": operation, "status": status }),
    };
    answer::json(code, &body)
}

/// The id of a request that this caller may see; any other might as well not be there.
async fn own(state: &AdmitState, caller: &Caller, id: &str) -> Result<OperationId, Problem> {
    let missing = || problems::not_found(&format!("request {:?}", id.chars().take(80).collect::<String>()));
    let operation = OperationId::parse(id).map_err(|_| missing())?;
    match read::requester(&state.store, &operation).await.map_err(|error| problems::store(&error))? {
        Some(requester) if caller.may_act_for(&requester) => Ok(operation),
        _ => Err(missing()),
    }
}

async fn current(state: &AdmitState, operation: &OperationId) -> Result<RequestView, Problem> {
    let request = read::request(&state.store, operation).await.map_err(|error| problems::store(&error))?;
    request.ok_or_else(|| problems::not_found(&format!("request {operation}")))
}
