//! Requests as their requesters see them.

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::ids::{BatchId, OperationId, Principal, SubjectId, TargetKey};
use crate::read::view::{Listed, MergeRequestView, Page, action, binding_status, from_json, from_optional_json, operation_status, truth};
use crate::state::{Action, BindingStatus, OperationStatus};
use crate::store::Store;

/// One request in its current state. Times are RFC 3339, in UTC, with microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestView {
    pub operation_id: OperationId,
    #[serde(deserialize_with = "operation_status")]
    pub status: OperationStatus,
    #[serde(deserialize_with = "action")]
    pub action: Action,
    pub subject_id: SubjectId,
    pub target_key: TargetKey,
    pub partition: String,
    pub requested_by: String,
    pub approval_ref: Option<String>,
    pub priority: u8,
    pub expires_at: Option<String>,
    /// The batch it is in, or was last in.
    pub batch_id: Option<BatchId>,
    /// Why it is where it is, where that needs a reason.
    pub code: Option<String>,
    pub message: Option<String>,
    #[serde(deserialize_with = "truth")]
    pub withdraw_requested: bool,
    pub withdraw_requested_at: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    /// When it ended.
    pub settled_at: Option<String>,
    /// That of `batch_id`.
    #[serde(default)]
    pub merge_request: Option<MergeRequestView>,
    /// The relationship of subject and target now; its `operation_id` tells whether this request made it so.
    #[serde(default)]
    pub binding: Option<BindingView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingView {
    #[serde(deserialize_with = "binding_status")]
    pub status: BindingStatus,
    /// The last request for it.
    pub operation_id: OperationId,
    pub expires_at: Option<String>,
}

/// Which requests are wanted; `None` means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFilter {
    pub requested_by: Option<Principal>,
    pub subject: Option<SubjectId>,
    pub target: Option<TargetKey>,
    pub status: Option<OperationStatus>,
}

/// `$rows` chooses rows of `operation o`, in their order, by one index; the joins reach one row each by PRIMARY.
macro_rules! select_requests {
    ($name:literal, $rows:literal) => {
        concat!(
            "/* ",
            $name,
            " */ SELECT JSON_OBJECT('operation_id', o.operation_id, 'status', o.status, 'action', o.action, \
                'subject_id', o.subject_id, 'target_key', o.target_key, 'partition', o.partition_key, \
                'requested_by', o.requested_by, 'approval_ref', o.approval_ref, 'priority', o.priority, \
                'expires_at', DATE_FORMAT(o.expires_at, '%Y-%m-%dT%H:%i:%s.%fZ'), 'batch_id', CAST(o.batch_id AS CHAR), \
                'code', o.code, 'message', o.message, 'withdraw_requested', o.withdraw_requested_at IS NOT NULL, \
                'withdraw_requested_at', DATE_FORMAT(o.withdraw_requested_at, '%Y-%m-%dT%H:%i:%s.%fZ'), \
                'created_at', DATE_FORMAT(o.created_at, '%Y-%m-%dT%H:%i:%s.%fZ'), \
                'updated_at', DATE_FORMAT(o.updated_at, '%Y-%m-%dT%H:%i:%s.%fZ'), \
                'settled_at', DATE_FORMAT(o.settled_at, '%Y-%m-%dT%H:%i:%s.%fZ')), \
            CASE WHEN m.mr_iid IS NOT NULL THEN JSON_OBJECT('iid', CAST(m.mr_iid AS CHAR), 'url', m.mr_url) END, \
            CASE WHEN b.operation_id IS NOT NULL THEN JSON_OBJECT('status', b.status, 'operation_id', b.operation_id, \
                'expires_at', DATE_FORMAT(b.expires_at, '%Y-%m-%dT%H:%i:%s.%fZ')) END \
            FROM (SELECT * FROM operation ",
            $rows,
            ") o LEFT JOIN merge_batch m ON m.id = o.batch_id \
            LEFT JOIN binding b ON b.subject_id = o.subject_id AND b.target_key = o.target_key ORDER BY o.operation_id DESC"
        )
    };
}

const READ_REQUEST: &str = select_requests!("requests.read", "WHERE operation_id = ?");

const READ_REQUESTER: &str = "/* requests.read_requester */ SELECT requested_by FROM operation WHERE operation_id = ?";

// One statement for each index that can carry a list: the parameters tell the rest.
const LIST_OF_SUBJECT: &str = select_requests!(
    "requests.list_of_subject",
    "FORCE INDEX (idx_subject_target) WHERE subject_id = ? AND (? IS NULL OR target_key = ?) AND (? IS NULL OR status = ?) \
     AND (? IS NULL OR requested_by = ?) AND operation_id < ? ORDER BY operation_id DESC LIMIT ?"
);
const LIST_OF_REQUESTER: &str = select_requests!(
    "requests.list_of_requester",
    "WHERE requested_by = ? AND (? IS NULL OR target_key = ?) AND (? IS NULL OR status = ?) \
     AND operation_id < ? ORDER BY operation_id DESC LIMIT ?"
);
const LIST_OF_TARGET: &str = select_requests!(
    "requests.list_of_target",
    "FORCE INDEX (idx_target) WHERE target_key = ? AND (? IS NULL OR status = ?) AND operation_id < ? ORDER BY operation_id DESC LIMIT ?"
);
const LIST_OF_STATUS: &str = select_requests!(
    "requests.list_of_status",
    "FORCE INDEX (idx_status_operation) WHERE status = ? AND operation_id < ? ORDER BY operation_id DESC LIMIT ?"
);
const LIST_OF_ALL: &str =
    select_requests!("requests.list_of_all", "FORCE INDEX (PRIMARY) WHERE operation_id < ? ORDER BY operation_id DESC LIMIT ?");

/// Above every id: the first page is the one before it.
const ABOVE_ALL: &str = "~";

type Columns = (String, Option<String>, Option<String>);

pub async fn request(store: &Store, operation: &OperationId) -> Result<Option<RequestView>, StoreError> {
    store.first::<Columns>(READ_REQUEST, (operation,)).await?.map(view_from).transpose()
}

/// Who may read and withdraw a request, besides operators.
pub async fn requester(store: &Store, operation: &OperationId) -> Result<Option<String>, StoreError> {
    Ok(store.first::<(String,)>(READ_REQUESTER, (operation,)).await?.map(|(requester,)| requester))
}

/// A page of requests, newest first.
pub async fn requests(store: &Store, filter: &RequestFilter, page: &Page<OperationId>) -> Result<Listed<RequestView>, StoreError> {
    let before = page.after.as_ref().map_or(ABOVE_ALL, OperationId::as_str);
    let limit = page.limit + 1;
    let RequestFilter { requested_by, subject, target, status } = filter;
    let rows: Vec<Columns> = match (subject, requested_by, target, status) {
        (Some(subject), by, target, status) => {
            store.rows(LIST_OF_SUBJECT, (subject, target, target, status, status, by, by, before, limit)).await?
        }
        (None, Some(by), target, status) => store.rows(LIST_OF_REQUESTER, (by, target, target, status, status, before, limit)).await?,
        (None, None, Some(target), status) => store.rows(LIST_OF_TARGET, (target, status, status, before, limit)).await?,
        (None, None, None, Some(status)) => store.rows(LIST_OF_STATUS, (status, before, limit)).await?,
        (None, None, None, None) => store.rows(LIST_OF_ALL, (before, limit)).await?,
    };
    let items = rows.into_iter().map(view_from).collect::<Result<Vec<_>, _>>()?;
    Ok(Listed::cut(items, page.limit, |one| one.operation_id.to_string()))
}

fn view_from((request, merge_request, binding): Columns) -> Result<RequestView, StoreError> {
    Ok(RequestView {
        merge_request: from_optional_json("requests.read", merge_request)?,
        binding: from_optional_json("requests.read", binding)?,
        ..from_json("requests.read", &request)?
    })
}
