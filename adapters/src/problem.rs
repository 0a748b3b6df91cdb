//! Errors over HTTP, as RFC 9457 writes them.

use serde_json::{Map, Value};

/// Media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// One kind of problem: what stays the same from one occurrence to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemType {
    /// Last part of `type`, which is `/problems/NAME`; clients compare it.
    pub name: &'static str,
    pub title: &'static str,
    pub status: u16,
}

impl ProblemType {
    /// An occurrence: what happened, what it means, what to do.
    pub fn because(self, detail: impl Into<String>) -> Problem {
        Problem { kind: self, detail: detail.into(), members: Map::new(), retry_after_s: None }
    }

    /// The URI reference in the member `type`.
    pub fn uri(self) -> String {
        format!("/problems/{}", self.name)
    }
}

/// A problem as it is answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub kind: ProblemType,
    pub detail: String,
    members: Map<String, Value>,
    /// Seconds, for the header `Retry-After`.
    pub retry_after_s: Option<u32>,
}

impl Problem {
    /// Adds a member with a part of the real current state.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The body.
    pub fn to_json(&self) -> Value {
        let mut body = self.members.clone();
        body.insert("type".into(), self.kind.uri().into());
        body.insert("title".into(), self.kind.title.into());
        body.insert("status".into(), self.kind.status.into());
        body.insert("detail".into(), self.detail.as_str().into());
        Value::Object(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_occurrence_never_hides_what_kind_it_is_of() {
        let kind = ProblemType { name: "binding-held", title: "The relationship is held", status: 409 };
        let body = kind.because("it is APPLYING").with("binding", "APPLYING").with("status", "X").with("type", "Y").to_json();
        assert_eq!(body["type"], "/problems/binding-held");
        assert_eq!(body["status"], 409);
        assert_eq!(body["binding"], "APPLYING");
        assert_eq!(body["detail"], "it is APPLYING");
    }
}
