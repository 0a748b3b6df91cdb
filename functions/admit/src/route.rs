//! Which of the API's routes a request is for.

use adapters::problem::Problem;
use lambda_http::http::Method;
use lambda_http::{Request, RequestExt};
use percent_encoding::percent_decode_str;

use crate::problems;

/// A route, with what its path says; the ids are not checked yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    PostRequest,
    ListRequests,
    GetRequest(String),
    DeleteRequest(String),
    ListBatches,
    GetBatch(String),
    GetStatus,
}

impl Route {
    pub fn of(request: &Request) -> Result<Self, Problem> {
        let raw = request.raw_http_path();
        Self::matching(request.method(), if raw.is_empty() { request.uri().path() } else { raw })
    }

    fn matching(method: &Method, path: &str) -> Result<Self, Problem> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let id = |raw: &str| percent_decode_str(raw).decode_utf8_lossy().into_owned();
        match (parts.as_slice(), method.as_str()) {
            (["requests"], "POST") => Ok(Self::PostRequest),
            (["requests"], "GET") => Ok(Self::ListRequests),
            (["requests"], _) => Err(problems::method_not_allowed(method, path, "GET, POST")),
            (["requests", raw], "GET") => Ok(Self::GetRequest(id(raw))),
            (["requests", raw], "DELETE") => Ok(Self::DeleteRequest(id(raw))),
            (["requests", _], _) => Err(problems::method_not_allowed(method, path, "GET, DELETE")),
            (["batches"], "GET") => Ok(Self::ListBatches),
            (["batches", raw], "GET") => Ok(Self::GetBatch(id(raw))),
            (["status"], "GET") => Ok(Self::GetStatus),
            (["batches"] | ["batches", _] | ["status"], _) => Err(problems::method_not_allowed(method, path, "GET")),
            _ => Err(problems::no_such_path(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_route_of_the_contract_is_found() {
        for (method, path, route) in [
            (Method::POST, "/requests", Route::PostRequest),
            (Method::POST, "/requests/", Route::PostRequest),
            (Method::GET, "/requests", Route::ListRequests),
            (Method::GET, "/requests/a%2Fb", Route::GetRequest("a/b".into())),
            (Method::DELETE, "/requests/a%20b", Route::DeleteRequest("a b".into())),
            (Method::GET, "/batches", Route::ListBatches),
            (Method::GET, "/batches/7", Route::GetBatch("7".into())),
            (Method::GET, "/status", Route::GetStatus),
        ] {
            assert_eq!(Route::matching(&method, path).unwrap(), route, "{method} {path}");
        }
    }

    #[test]
    fn a_wrong_method_is_told_the_right_ones() {
        for (method, path, allow) in [
            (Method::PUT, "/requests", "GET, POST"),
            (Method::POST, "/requests/x", "GET, DELETE"),
            (Method::DELETE, "/batches/1", "GET"),
            (Method::POST, "/status", "GET"),
        ] {
            let problem = Route::matching(&method, path).unwrap_err();
            assert_eq!((problem.kind.status, problem.to_json()["allow"].as_str()), (405, Some(allow)), "{method} {path}");
        }
        for path in ["", "/", "/nothing", "/requests/a/b", "/webhooks/gitlab"] {
            assert_eq!(Route::matching(&Method::GET, path).unwrap_err().kind.status, 404, "{path}");
        }
    }
}
