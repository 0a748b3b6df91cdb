//! What GitLab's events say of a merge request of ours. Everything else in them is ignored.

use serde_json::Value;
use shared::ids::BRANCH_ROOT;

/// A change of a merge request, or of a pipeline of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub kind: &'static str,
    pub project_id: u64,
    pub mr_iid: u64,
    pub source_branch: String,
}

/// Why an authentic delivery tells us nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ignored {
    NoJson,
    OtherKind,
    NoMergeRequest,
    OtherBranch,
}

impl Ignored {
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoJson => "the body is not a JSON object",
            Self::OtherKind => "only merge request and pipeline events are followed",
            Self::NoMergeRequest => "the event names no merge request, project and source branch",
            Self::OtherBranch => "the source branch is not one of Muster's",
        }
    }
}

impl Event {
    pub fn read(body: &[u8]) -> Result<Self, Ignored> {
        let body: Value = serde_json::from_slice(body).ok().filter(Value::is_object).ok_or(Ignored::NoJson)?;
        let (kind, merge_request) = match body["object_kind"].as_str() {
            Some("merge_request") => ("merge_request", &body["object_attributes"]),
            Some("pipeline") => ("pipeline", &body["merge_request"]),
            _ => return Err(Ignored::OtherKind),
        };
        // The project that the merge request is in, and not the fork it may come from.
        let project_id = number(&merge_request["target_project_id"]).or_else(|| number(&body["project"]["id"]));
        let (Some(project_id), Some(mr_iid), Some(branch)) =
            (project_id, number(&merge_request["iid"]), merge_request["source_branch"].as_str())
        else {
            return Err(Ignored::NoMergeRequest);
        };
        if !branch.starts_with(BRANCH_ROOT) {
            return Err(Ignored::OtherBranch);
        }
        Ok(Self { kind, project_id, mr_iid, source_branch: branch.to_owned() })
    }
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BRANCH: &str = "muster/default/0123456789abcdef0123456789abcdef";

    fn read(body: &Value) -> Result<Event, Ignored> {
        Event::read(body.to_string().as_bytes())
    }

    #[test]
    fn both_kinds_of_events_name_the_same_merge_request() {
        let merge_request = read(&json!({
            "object_kind": "merge_request", "project": {"id": 7},
            "object_attributes": {"iid": 3, "source_branch": BRANCH, "target_project_id": 7, "state": "a state of tomorrow"},
        }));
        let pipeline = read(&json!({
            "object_kind": "pipeline", "project": {"id": 7}, "object_attributes": {"ref": "refs/merge-requests/3/head", "iid": 99},
            "merge_request": {"iid": "3", "source_branch": BRANCH},
        }));
        let expected = |kind| Ok(Event { kind, project_id: 7, mr_iid: 3, source_branch: BRANCH.to_owned() });
        assert_eq!(merge_request, expected("merge_request"));
        assert_eq!(pipeline, expected("pipeline"));
    }

    #[test]
    fn what_is_not_ours_is_ignored_with_its_reason() {
        let of = |branch: Value, iid: Value| json!({"object_kind": "merge_request", "project": {"id": 7}, "object_attributes": {"iid": iid, "source_branch": branch}});
        assert_eq!(read(&of(json!("feature/x"), json!(3))), Err(Ignored::OtherBranch));
        assert_eq!(read(&of(json!("musterx/y"), json!(3))), Err(Ignored::OtherBranch));
        assert_eq!(read(&of(json!(BRANCH), json!(-3))), Err(Ignored::NoMergeRequest));
        assert_eq!(read(&of(json!(["x"]), json!(3))), Err(Ignored::NoMergeRequest));
        assert_eq!(read(&json!({"object_kind": "pipeline", "project": {"id": 7}, "merge_request": null})), Err(Ignored::NoMergeRequest));
        assert_eq!(read(&json!({"object_kind": "push"})), Err(Ignored::OtherKind));
        assert_eq!(read(&json!({})), Err(Ignored::OtherKind));
        assert_eq!(read(&json!([])), Err(Ignored::NoJson));
        assert_eq!(Event::read(b"\xff"), Err(Ignored::NoJson));
    }
}
