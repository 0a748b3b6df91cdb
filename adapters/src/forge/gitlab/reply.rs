//! One answer of GitLab's, and the words it uses in each of the body shapes it has.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::forge::ForgeError;

/// Longest text of the forge's that we carry in an error.
const TEXT_CHARS: usize = 500;

/// An answer that is the verb's to interpret: 2xx, 400, 404, 405, 406, 409, 413, 422 and what nobody expects.
#[derive(Debug)]
pub(super) struct Reply {
    pub call: &'static str,
    pub status: u16,
    pub body: Vec<u8>,
    /// Query string of the next page, where there is one.
    pub next_page: Option<String>,
}

impl Reply {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ForgeError> {
        serde_json::from_slice(&self.body).map_err(|error| ForgeError::Unexpected {
            call: self.call,
            status: self.status,
            // Not the error's own text: that may quote content of the repository.
            detail: format!("its JSON is not what we know, at line {} column {}", error.line(), error.column()),
        })
    }

    /// The forge's own words, whichever shape they came in.
    pub fn text(&self) -> String {
        shorten(&words(&self.body))
    }

    /// `{"error": …}` alone: GitLab's parameter check refused the request before any of its services saw it.
    pub fn is_parameter_error(&self) -> bool {
        matches!(serde_json::from_slice(&self.body), Ok(Value::Object(map)) if map.contains_key("error") && !map.contains_key("message"))
    }

    /// The project itself is unknown, as opposed to something within it.
    pub fn misses_project(&self) -> bool {
        self.status == 404 && self.text().contains("Project Not Found")
    }

    pub fn unexpected(&self) -> ForgeError {
        ForgeError::Unexpected { call: self.call, status: self.status, detail: self.text() }
    }
}

/// A proxy's error page, or a login page: whoever wrote it, it was not the API.
pub(super) fn is_html(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'<')
}

pub(super) fn words(body: &[u8]) -> String {
    if is_html(body) {
        return "an HTML page in place of the API's JSON".to_owned();
    }
    match serde_json::from_slice(body) {
        Ok(value) => of_value(&value),
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    }
}

fn of_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => joined(items.iter().map(of_value)),
        Value::Object(map) => {
            let known = ["message", "error", "error_description", "errors"];
            if known.iter().any(|key| map.contains_key(*key)) {
                return joined(known.iter().filter_map(|key| map.get(*key)).map(of_value));
            }
            // {"field": ["is wrong"]}
            joined(map.iter().map(|(field, problem)| format!("{field} {}", of_value(problem))))
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_shape_of_an_error_body_gives_its_words() {
        for (body, expected) in [
            (r#"{"message":"404 Project Not Found"}"#, "404 Project Not Found"),
            (r#"{"message":["Another open merge request already exists: !7"]}"#, "Another open merge request already exists: !7"),
            (r#"{"message":{"source_branch":["does not exist"]}}"#, "source_branch does not exist"),
            (r#"{"message":{"error":"requested too many times"}}"#, "requested too many times"),
            (r#"{"error":"branch is missing"}"#, "branch is missing"),
            (r#"{"error":"invalid_token","error_description":"Token was revoked."}"#, "invalid_token; Token was revoked."),
            (r#"{"errors":[{"message":"Timeout"}]}"#, "Timeout"),
            ("Retry later\n", "Retry later"),
            ("\n<!DOCTYPE html><html>502</html>", "an HTML page in place of the API's JSON"),
            ("", ""),
        ] {
            assert_eq!(words(body.as_bytes()), expected, "for {body}");
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let body = "é".repeat(TEXT_CHARS + 1).into_bytes();
        let reply = Reply { call: "x", status: 400, body, next_page: None };
        assert_eq!(reply.text().chars().count(), TEXT_CHARS + 1);
        assert!(reply.text().ends_with('…'));
    }

    #[test]
    fn a_body_that_is_not_what_we_know_is_not_quoted() {
        let reply = Reply { call: "x", status: 200, body: br#"{"id":"secret text"}"#.to_vec(), next_page: None };
        let error = reply.parse::<std::collections::BTreeMap<String, u64>>().unwrap_err().to_string();
        assert!(!error.contains("secret text"), "{error}");
    }
}
