//! Typed values of variables.

use std::fmt;

/// Where a stack runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A developer's machine.
    Local,
    Prod,
}

/// A text that no log shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The secret itself, for the one call that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Which callers are operators: those whose claim holds the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorRule {
    /// Name of a claim of the caller's token.
    pub claim: String,
    pub value: String,
}

impl OperatorRule {
    /// Does the text of a claim hold the value, as the whole or as one of a list? API Gateway hands a
    /// list on as one text, `[a b]`; issuers write lists as `a b`, `a,b` or `["a","b"]`.
    pub fn is_met_by(&self, claim: &str) -> bool {
        let inside = claim.trim().trim_start_matches('[').trim_end_matches(']');
        claim == self.value
            || inside.split(|c: char| c == ',' || c.is_whitespace()).any(|one| one.trim_matches('"') == self.value && !one.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_a_text_or_any_spelling_of_a_list() {
        let rule = OperatorRule { claim: "groups".into(), value: "ops".into() };
        for yes in ["ops", "a ops", "a,ops", "[a ops b]", "[ops]", r#"["a","ops"]"#, r#"["a", "ops"]"#, " ops "] {
            assert!(rule.is_met_by(yes), "{yes}");
        }
        for no in ["", "[]", "opsx", "xops", "dev-ops", "ops/readers", "OPS", r#"["a"]"#] {
            assert!(!rule.is_met_by(no), "{no}");
        }
    }
}
