//! The query of a list: only parameters that are known, each once, each of its form.

use adapters::problem::Problem;
use lambda_http::{Request, RequestExt};

use crate::problems;

/// Entries of a page where the client does not say.
const LIMIT_DEFAULT: u32 = 50;
const LIMIT_MAX: u32 = 100;

/// Reads parameters one by one and collects what is wrong with them.
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    errors: Vec<String>,
}

impl Query {
    /// A parameter that is not known would be a filter that silently does not filter.
    pub fn of(request: &Request, known: &[&str]) -> Self {
        let parameters = request.query_string_parameters();
        // An event without API Gateway's own list still has its URI.
        let parameters =
            if parameters.is_empty() { request.uri().query().unwrap_or_default().parse().unwrap_or(parameters) } else { parameters };
        let pairs = parameters.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self::from_pairs(pairs, known)
    }

    fn from_pairs(pairs: Vec<(String, String)>, known: &[&str]) -> Self {
        let mut errors = Vec::new();
        for (at, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                errors.push(format!("the query parameter {name:?} is not one of {}", known.join(", ")));
            } else if pairs[..at].iter().any(|(earlier, _)| earlier == name) {
                errors.push(format!("the query parameter {name} is there more than once"));
            }
        }
        Self { pairs, errors }
    }

    /// A parameter of some form; absent and empty are the same.
    pub fn optional<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let (_, value) = self.pairs.iter().find(|(one, value)| one == name && !value.is_empty())?;
        parse(value).map_err(|why| self.errors.push(format!("the query parameter {name}: {why}"))).ok()
    }

    pub fn limit(&mut self) -> u32 {
        let parse = |text: &str| match text.parse() {
            Ok(limit @ 1..=LIMIT_MAX) => Ok(limit),
            _ => Err(format!("{text:?} is not a number from 1 to {LIMIT_MAX}")),
        };
        self.optional("limit", parse).unwrap_or(LIMIT_DEFAULT)
    }

    pub fn end(self) -> Result<(), Problem> {
        if self.errors.is_empty() { Ok(()) } else { Err(problems::invalid(self.errors)) }
    }
}

/// One of the names of a state.
pub(crate) fn state<T: Copy>(text: &str, from_name: fn(&str) -> Option<T>, names: &[&'static str]) -> Result<T, String> {
    from_name(text).ok_or_else(|| format!("{text:?} is not one of {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Query {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Query::from_pairs(pairs, &["status", "limit"])
    }

    #[test]
    fn a_limit_lies_between_1_and_100() {
        assert_eq!(query(&[]).limit(), LIMIT_DEFAULT);
        assert_eq!(query(&[("limit", "")]).limit(), LIMIT_DEFAULT);
        assert_eq!(query(&[("limit", "100")]).limit(), 100);
        for bad in ["0", "101", "-1", "x", "1.5"] {
            let mut query = query(&[("limit", bad)]);
            query.limit();
            assert_eq!(query.end().unwrap_err().kind.status, 400, "{bad}");
        }
    }

    #[test]
    fn a_filter_that_would_not_filter_is_refused() {
        assert!(query(&[("status", "MERGED")]).end().is_ok());
        let problem = query(&[("staus", "MERGED"), ("limit", "1"), ("limit", "2")]).end().unwrap_err();
        assert_eq!(problem.to_json()["errors"].as_array().unwrap().len(), 2);
    }
}
