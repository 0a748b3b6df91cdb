//! Rows read as JSON objects: the database formats their times and names their members.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::StoreError;
use crate::state::{Action, BatchStatus, BindingStatus, FailCause, MemberOutcome, OperationStatus, Trigger};

/// A merge request as the forge names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRequestView {
    /// Its number, as text like every id.
    pub iid: String,
    pub url: Option<String>,
}

/// Which part of a list is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<Id> {
    /// The last id of the page before.
    pub after: Option<Id>,
    /// Entries, at most.
    pub limit: u32,
}

/// A part of a list, newest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed<View> {
    pub items: Vec<View>,
    /// The `cursor` of the next page; `None` where this is the last.
    pub next_cursor: Option<String>,
}

impl<View> Listed<View> {
    /// Of rows read up to one more than `limit`: the further one tells that there is a next page.
    pub(super) fn cut(mut items: Vec<View>, limit: u32, id: impl Fn(&View) -> String) -> Self {
        let has_more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next_cursor = items.last().filter(|_| has_more).map(id);
        Self { items, next_cursor }
    }
}

pub(super) fn from_json<View: DeserializeOwned>(statement: &'static str, text: &str) -> Result<View, StoreError> {
    serde_json::from_str(text)
        .map_err(|why| StoreError::corrupt(format!("{statement} read a row of another form than the code expects: {why}")))
}

pub(super) fn from_optional_json<View: DeserializeOwned>(
    statement: &'static str,
    text: Option<String>,
) -> Result<Option<View>, StoreError> {
    text.map(|text| from_json(statement, &text)).transpose()
}

/// A comparison is a truth value in MySQL's JSON and a number in MariaDB's.
pub(super) fn truth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Spelling {
        Truth(bool),
        Number(u8),
    }
    Ok(matches!(Spelling::deserialize(deserializer)?, Spelling::Truth(true) | Spelling::Number(1..)))
}

macro_rules! by_code {
    ($($name:ident: $state:ty),+ $(,)?) => {
        $(pub(super) fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$state, D::Error> {
            <$state>::from_code(i64::deserialize(deserializer)?).map_err(D::Error::custom)
        })+
    };
}

macro_rules! by_code_or_null {
    ($($name:ident: $state:ty),+ $(,)?) => {
        $(pub(super) fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<$state>, D::Error> {
            Option::<i64>::deserialize(deserializer)?.map(<$state>::from_code).transpose().map_err(D::Error::custom)
        })+
    };
}

by_code! {
    action: Action,
    batch_status: BatchStatus,
    binding_status: BindingStatus,
    operation_status: OperationStatus,
    trigger: Trigger,
}

by_code_or_null! {
    fail_cause_or_null: FailCause,
    member_outcome_or_null: MemberOutcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_next_one_only_where_there_is_one() {
        let cut = |rows: Vec<u32>| Listed::cut(rows, 2, |row| row.to_string());
        assert_eq!(cut(vec![]), Listed { items: vec![], next_cursor: None });
        assert_eq!(cut(vec![3, 2]), Listed { items: vec![3, 2], next_cursor: None });
        assert_eq!(cut(vec![3, 2, 1]), Listed { items: vec![3, 2], next_cursor: Some("2".into()) });
    }

    #[test]
    fn a_state_that_no_code_names_is_an_error() {
        #[derive(Debug, Deserialize)]
        struct Row {
            #[serde(deserialize_with = "operation_status")]
            status: OperationStatus,
            #[serde(deserialize_with = "member_outcome_or_null")]
            outcome: Option<MemberOutcome>,
        }
        let row: Row = from_json("a test", r#"{"status":3,"outcome":null}"#).expect("valid");
        assert_eq!((row.status, row.outcome), (OperationStatus::Merged, None));
        assert!(from_json::<Row>("a test", r#"{"status":9,"outcome":1}"#).is_err());
    }
}
