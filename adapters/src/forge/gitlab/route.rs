//! Paths and query strings of the API, percent-encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::forge::ProjectRef;

/// RFC 3986's unreserved characters stay; a `/` within a name must become `%2F`.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// `projects/<id or path>/<rest>`; the id survives a rename, so it is used where known.
pub(super) fn of_project(project: &ProjectRef, rest: &str) -> String {
    let name = project.id.map_or_else(|| encoded(&project.path), |id| id.to_string());
    let slash = if rest.is_empty() { "" } else { "/" };
    format!("projects/{name}{slash}{rest}")
}

pub(super) fn with_query(route: &str, pairs: &[(&str, &str)]) -> String {
    let query: Vec<String> = pairs.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    format!("{route}?{}", query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(id: Option<u64>) -> ProjectRef {
        ProjectRef { path: "acme/sub.group/access".into(), id, target_branch: "main".into() }
    }

    #[test]
    fn a_project_is_named_by_its_number_once_that_is_known() {
        assert_eq!(of_project(&project(Some(7)), "merge_requests"), "projects/7/merge_requests");
        assert_eq!(of_project(&project(None), ""), "projects/acme%2Fsub.group%2Faccess");
    }

    #[test]
    fn a_query_cannot_be_broken_by_its_values() {
        assert_eq!(with_query("x", &[("refs[]", "a&b"), ("ref", "é/+")]), "x?refs%5B%5D=a%26b&ref=%C3%A9%2F%2B");
    }
}
