//! Reads variables one by one and collects what is wrong with them.

use mysql_async::Opts;
use reqwest::Url;
use shared::ids::Principal;

use super::{ConfigError, Lookup, OperatorRule, Secret, Stage};

/// Between two secrets while they are rotated.
const ROTATION_SEPARATOR: char = ',';
const WEBHOOK_TOKENS_MAX: usize = 2;

/// A pass over one function's variables. A malformed one leaves a harmless value, which `end` keeps from being used.
pub(super) struct Reading<'a> {
    lookup: &'a Lookup<'a>,
    problems: Vec<String>,
}

impl<'a> Reading<'a> {
    pub fn new(lookup: &'a Lookup<'a>) -> Self {
        Self { lookup, problems: Vec::new() }
    }

    pub fn end(self) -> Result<(), ConfigError> {
        if self.problems.is_empty() { Ok(()) } else { Err(ConfigError { problems: self.problems }) }
    }

    /// Unset and empty are the same: a template passes a parameter without a value as an empty text.
    fn optional(&self, name: &str) -> Option<String> {
        (self.lookup)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn required(&mut self, name: &str, meaning: &str) -> Option<String> {
        let value = self.optional(name);
        if value.is_none() {
            self.problems.push(format!("{name} is not set; give {meaning}"));
        }
        value
    }

    /// Never quotes the value: it holds a password, and a malformed one holds it in an unknown place.
    pub fn database_url(&mut self) -> Secret {
        const FORM: &str = "mysql://user:password@host:port/database, the password percent-encoded";
        let Some(value) = self.required("DATABASE_URL", FORM) else { return Secret::default() };
        let has_database = Opts::from_url(&value).is_ok_and(|opts| opts.db_name().is_some_and(|name| !name.is_empty()));
        if !has_database {
            self.problems.push(format!("DATABASE_URL is not of the form {FORM}"));
        }
        Secret::new(value)
    }

    pub fn stage(&mut self) -> Stage {
        match self.required("STAGE", "local or prod").as_deref() {
            Some("local") => Stage::Local,
            Some("prod") | None => Stage::Prod,
            Some(other) => {
                self.problems.push(format!("STAGE is {other:?}; give local or prod"));
                Stage::Prod
            }
        }
    }

    pub fn dev_principal(&mut self, stage: Stage) -> Option<Principal> {
        let value = self.optional("DEV_PRINCIPAL")?;
        if stage != Stage::Local {
            self.problems.push("DEV_PRINCIPAL is set although STAGE is not local: it would let anybody in; remove it".into());
        }
        Principal::parse(value).map_err(|why| self.problems.push(format!("DEV_PRINCIPAL: {why}"))).ok()
    }

    pub fn operators(&mut self) -> Option<OperatorRule> {
        match (self.optional("OPERATOR_CLAIM"), self.optional("OPERATOR_VALUE")) {
            (Some(claim), Some(value)) => Some(OperatorRule { claim, value }),
            (None, None) => None,
            (claim, _) => {
                let (has, lacks) = if claim.is_some() { ("CLAIM", "VALUE") } else { ("VALUE", "CLAIM") };
                self.problems.push(format!("OPERATOR_{has} is set and OPERATOR_{lacks} is not; give both, or neither for no operators"));
                None
            }
        }
    }

    pub fn switch(&mut self, name: &str) -> bool {
        match self.optional(name).as_deref() {
            Some("true") => true,
            Some("false") | None => false,
            Some(other) => {
                self.problems.push(format!("{name} is {other:?}; give true or false"));
                false
            }
        }
    }

    /// An http or https address, without its last slash.
    pub fn url(&mut self, name: &str, meaning: &str) -> String {
        let Some(value) = self.required(name, meaning) else { return String::new() };
        let is_web = Url::parse(&value).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !is_web {
            self.problems.push(format!("{name} is {value:?}, which is not an http or https address; give {meaning}"));
        }
        value.trim_end_matches('/').to_owned()
    }

    pub fn text(&mut self, name: &str, meaning: &str) -> String {
        self.required(name, meaning).unwrap_or_default()
    }

    pub fn secret(&mut self, name: &str, meaning: &str) -> Secret {
        let value = self.required(name, meaning).unwrap_or_default();
        if !value.bytes().all(|b| b.is_ascii_graphic()) {
            self.problems.push(format!("{name} holds a space or a character outside ASCII; give {meaning}"));
        }
        Secret::new(value)
    }

    pub fn webhook_tokens(&mut self) -> Vec<Secret> {
        const MEANING: &str = "the secret token of the GitLab webhook, or the old and the new one with a comma between them";
        let Some(value) = self.required("WEBHOOK_TOKEN", MEANING) else { return Vec::new() };
        let tokens: Vec<&str> = value.split(ROTATION_SEPARATOR).map(str::trim).collect();
        let usable = |token: &&str| !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
        if tokens.len() > WEBHOOK_TOKENS_MAX || !tokens.iter().all(usable) {
            self.problems.push(format!("WEBHOOK_TOKEN is not usable; give {MEANING}, in ASCII without spaces"));
        }
        tokens.into_iter().map(Secret::new).collect()
    }
}
