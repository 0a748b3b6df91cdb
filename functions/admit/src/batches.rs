//! `GET /batches`, `GET /batches/{id}` and `GET /status`.

use adapters::problem::Problem;
use lambda_http::http::{Response, StatusCode};
use lambda_http::{Body, Request};
use serde::Serialize;
use serde_json::json;
use shared::ids::{BatchId, PartitionKey};
use shared::read::batches::{self as read, BatchView, MemberView};
use shared::read::view::{Listed, Page};
use shared::state::BatchStatus;

use crate::caller::Caller;
use crate::query::{self, Query};
use crate::{AdmitState, answer, problems};

/// A batch with the members that its reader may see.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    batch: BatchView,
    members: Vec<MemberView>,
}

pub(crate) async fn list(state: &AdmitState, request: &Request) -> Result<Response<Body>, Problem> {
    let mut query = Query::of(request, &["status", "partition", "cursor", "limit"]);
    let names: Vec<_> = BatchStatus::ALL.iter().map(|status| status.name()).collect();
    let status = query.optional("status", |text| query::state(text, BatchStatus::from_name, &names));
    let partition = query.optional("partition", |text| PartitionKey::parse(text).map_err(|why| why.to_string()));
    let after = query.optional("cursor", |text| parse(text).ok_or_else(|| format!("{text:?} is not a batch id")));
    let page = Page { after, limit: query.limit() };
    query.end()?;
    let listed = read::batches(&state.store, partition.as_ref(), status, &page).await;
    let Listed { items, next_cursor } = listed.map_err(|error| problems::store(&error))?;
    answer::json(StatusCode::OK, &json!({ "batches": items, "next_cursor": next_cursor }))
}

pub(crate) async fn show(state: &AdmitState, caller: &Caller, id: &str) -> Result<Response<Body>, Problem> {
    let missing = || problems::not_found(&format!("batch {:?}", id.chars().take(80).collect::<String>()));
    let id = parse(id).ok_or_else(missing)?;
    let batch = read::batch(&state.store, id).await.map_err(|error| problems::store(&error))?.ok_or_else(missing)?;
    // Everybody may follow a batch; who else is in it is for operators.
    let members = read::members(&state.store, id, caller.only_own().as_ref()).await.map_err(|error| problems::store(&error))?;
    answer::json(StatusCode::OK, &Shown { batch, members })
}

pub(crate) async fn status(state: &AdmitState) -> Result<Response<Body>, Problem> {
    let status = shared::read::status::status(&state.store).await.map_err(|error| problems::store(&error))?;
    answer::json(StatusCode::OK, &status)
}

/// Only the spelling that we write ourselves.
fn parse(id: &str) -> Option<BatchId> {
    id.parse().ok().filter(|number: &u64| number.to_string() == id).map(BatchId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_one_address() {
        assert_eq!(parse("18446744073709551615"), Some(BatchId(u64::MAX)));
        for other in ["", "+1", "01", "-1", "1.0", " 1", "18446744073709551616", "x"] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }
}
