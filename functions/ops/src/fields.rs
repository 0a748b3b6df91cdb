//! The fields of an event, taken one by one; all that is wrong with them is told at once.

use serde_json::{Map, Value};
use shared::ids::{BatchId, InvalidId, Principal};
use shared::transactions::command::{Command, REASON_MAX};

/// What is left of an event, and what was wrong with the fields taken so far.
#[derive(Debug)]
pub struct Fields {
    left: Map<String, Value>,
    problems: Vec<String>,
}

impl Fields {
    pub fn new(event: Map<String, Value>) -> Self {
        Self { left: event, problems: Vec::new() }
    }

    pub fn wrong(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// `null` says the same as leaving a field out.
    pub fn has(&self, name: &str) -> bool {
        self.left.get(name).is_some_and(|value| !value.is_null())
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.left.remove(name).filter(|value| !value.is_null())
    }

    fn taken<T>(&mut self, name: &str, form: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let value = self.take(name)?;
        let read = read(&value);
        if read.is_none() {
            let shown: String = value.to_string().chars().take(80).collect();
            self.wrong(format!("{name} {shown} is not {form}"));
        }
        read
    }

    pub fn text(&mut self, name: &str) -> Option<String> {
        self.taken(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    pub fn number(&mut self, name: &str) -> Option<u64> {
        self.taken(name, "a whole number from 0 on", Value::as_u64)
    }

    pub fn flag(&mut self, name: &str) -> Option<bool> {
        self.taken(name, "true or false", Value::as_bool)
    }

    pub fn texts(&mut self, name: &str) -> Option<Vec<String>> {
        self.taken(name, "a list of texts", |value| value.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect())
    }

    /// Left out: `None`; `null`: `Some(None)`.
    pub fn number_or_null(&mut self, name: &str) -> Option<Option<u64>> {
        match self.left.get(name)? {
            Value::Null => {
                self.left.remove(name);
                Some(None)
            }
            _ => self.taken(name, "a whole number from 0 on, or null", Value::as_u64).map(Some),
        }
    }

    pub fn id<T>(&mut self, name: &str, parse: impl FnOnce(String) -> Result<T, InvalidId>) -> Option<T> {
        let parsed = parse(self.text(name)?);
        parsed.map_err(|why| self.wrong(why.to_string())).ok()
    }

    /// An id that the action cannot do without.
    pub fn needed_id<T>(&mut self, name: &str, parse: impl FnOnce(String) -> Result<T, InvalidId>) -> Option<T> {
        if !self.has(name) {
            self.wrong(format!("{name} is missing"));
        }
        self.id(name, parse)
    }

    /// As Muster writes it, a text; as people type it, a number too.
    pub fn batch(&mut self) -> Option<BatchId> {
        self.taken("batch_id", "the number of a batch", |value| {
            let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
            number.filter(|number| *number > 0).map(BatchId)
        })
    }

    pub fn needed_batch(&mut self) -> Option<BatchId> {
        if !self.has("batch_id") {
            self.wrong("batch_id is missing");
        }
        self.batch()
    }

    /// Who orders it, why, and whether it is a rehearsal: needed by everything that writes.
    pub fn command(&mut self, action: &'static str) -> Option<Command> {
        let actor = self.needed_id("actor", Principal::parse);
        let dry_run = self.flag("dry_run").unwrap_or(false);
        let reason = match self.text("reason") {
            Some(reason) => self.checked_reason(reason),
            None => {
                self.wrong("reason is missing; say why, for whoever reads the audit");
                None
            }
        };
        Some(Command::new(action, actor?, reason?, dry_run))
    }

    fn checked_reason(&mut self, reason: String) -> Option<String> {
        let reason = reason.trim().to_owned();
        if reason.is_empty() || reason.chars().count() > REASON_MAX || reason.chars().any(char::is_control) {
            self.wrong(format!("reason is not a text of 1 to {REASON_MAX} characters on one line"));
            return None;
        }
        Some(reason)
    }

    /// An action that only reads may be told who asks, and why; it is not kept.
    pub fn skip_signature(&mut self) {
        let _ = self.id("actor", Principal::parse);
        let _ = self.text("reason");
    }

    /// All problems, those of unknown fields included; empty: the event was understood as a whole.
    pub fn end(mut self, more: Vec<String>) -> Vec<String> {
        self.problems.extend(more);
        let unknown: Vec<String> = self.left.keys().map(|name| name.chars().take(80).collect()).collect();
        self.problems.extend(unknown.into_iter().map(|name| format!("the action knows no field {name:?}")));
        self.problems
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;
    use shared::ids::PartitionKey;

    fn fields(event: Value) -> Fields {
        Fields::new(event.as_object().unwrap().clone())
    }

    #[test]
    fn every_wrong_field_is_told() {
        let mut event = fields(json!({
            "actor": "a b", "reason": "  ", "dry_run": "yes", "partition": 7, "max_bytes": -1, "allowed_prefixes": ["a/", 1], "capactiy": 3,
        }));
        assert!(event.command("x").is_none());
        assert_eq!(event.needed_id("partition", PartitionKey::parse), None);
        assert_eq!((event.number("max_bytes"), event.texts("allowed_prefixes")), (None, None));
        assert_eq!(event.needed_batch(), None);
        let problems = event.end(vec!["one more".into()]);
        assert_eq!(problems.len(), 9, "{problems:#?}");
    }

    #[test]
    fn null_is_left_out_except_where_it_means_something() {
        let mut event = fields(json!({ "actor": "ann", "reason": " why ", "dry_run": null, "capacity": null, "batch_id": "12" }));
        let command = event.command("x").unwrap();
        assert_eq!((command.dry_run, command.reason.as_str()), (false, "why"));
        assert_eq!(event.number_or_null("capacity"), Some(None));
        assert_eq!(event.number_or_null("capacity"), None);
        assert_eq!(event.batch(), Some(BatchId(12)));
        assert_eq!(event.end(Vec::new()), Vec::<String>::new());
    }
}
