//! The environment, read once at a cold start. Nothing else in Muster reads it.
//!
//! Every function has its own set of variables; all that is wrong with them is told in one error.

mod reading;
mod values;

use std::fmt;

use shared::ids::Principal;

use reading::Reading;
pub use values::{OperatorRule, Secret, Stage};

/// Where the value of a variable comes from: the environment, or a table in a test.
pub type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// All that is wrong with a function's variables, one sentence each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub problems: Vec<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the function cannot start until its environment is put right: {}", self.problems.join("; "))
    }
}

impl std::error::Error for ConfigError {}

/// Variables of `admit`.
#[derive(Debug, Clone)]
pub struct AdmitConfig {
    /// `DATABASE_URL`: `mysql://user:password@host:port/database`.
    pub database_url: Secret,
    /// `STAGE`: `local` or `prod`.
    pub stage: Stage,
    /// `DEV_PRINCIPAL`: whom every caller without an authorizer is taken for. Only where the stage is local.
    pub dev_principal: Option<Principal>,
    /// `OPERATOR_CLAIM` and `OPERATOR_VALUE`; without them nobody is an operator.
    pub operators: Option<OperatorRule>,
    /// `STRICT_TARGETS`: `true` refuses requests for a target that no operator has set up.
    pub strict_targets: bool,
}

/// Variables of `webhook`.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// `WEBHOOK_TOKEN`: one secret, or two with a comma between them while they are rotated.
    pub tokens: Vec<Secret>,
    /// `MR_STATUS_QUEUE_URL`.
    pub mr_status_queue_url: String,
}

/// Variables of `claim-round`, `settle`, `sweep` and `ops`: whatever performs effects.
#[derive(Debug, Clone)]
pub struct RunnerConfig {
    /// `DATABASE_URL`: `mysql://user:password@host:port/database`.
    pub database_url: Secret,
    /// `STAGE`: `local` or `prod`.
    pub stage: Stage,
    /// `GITLAB_URL`: root of the GitLab instance.
    pub gitlab_url: String,
    /// `GITLAB_TOKEN`: a token with scope `api`.
    pub gitlab_token: Secret,
    /// `EVENTS_QUEUE_URL`.
    pub events_queue_url: String,
    /// `CLAIM_ROUND_FUNCTION`: name of the function that a follow-up round invokes.
    pub claim_round_function: String,
}

impl AdmitConfig {
    /// # Errors
    /// Names every variable that is missing or malformed.
    pub fn from_environment() -> Result<Self, ConfigError> {
        Self::from(&variable)
    }

    /// # Errors
    /// Names every variable that is missing or malformed.
    pub fn from(lookup: &Lookup<'_>) -> Result<Self, ConfigError> {
        let mut reading = Reading::new(lookup);
        let database_url = reading.database_url();
        let stage = reading.stage();
        let dev_principal = reading.dev_principal(stage);
        let operators = reading.operators();
        let strict_targets = reading.switch("STRICT_TARGETS");
        reading.end()?;
        Ok(Self { database_url, stage, dev_principal, operators, strict_targets })
    }
}

impl WebhookConfig {
    /// # Errors
    /// Names every variable that is missing or malformed.
    pub fn from_environment() -> Result<Self, ConfigError> {
        Self::from(&variable)
    }

    /// # Errors
    /// Names every variable that is missing or malformed.
    pub fn from(lookup: &Lookup<'_>) -> Result<Self, ConfigError> {
        let mut reading = Reading::new(lookup);
        let tokens = reading.webhook_tokens();
        let mr_status_queue_url = reading.url("MR_STATUS_QUEUE_URL", "the address of the SQS queue mr-status");
        reading.end()?;
        Ok(Self { tokens, mr_status_queue_url })
    }
}

impl RunnerConfig {
    /// # Errors
    /// Names every variable that is missing or malformed.
    pub fn from_environment() -> Result<Self, ConfigError> {
        Self::from(&variable)
    }

    /// # Errors
    /// Names every variable that is missing or malformed.
    pub fn from(lookup: &Lookup<'_>) -> Result<Self, ConfigError> {
        let mut reading = Reading::new(lookup);
        let database_url = reading.database_url();
        let stage = reading.stage();
        let gitlab_url = reading.url("GITLAB_URL", "the root of your GitLab, such as https://gitlab.example.com");
        let gitlab_token = reading.secret("GITLAB_TOKEN", "a GitLab token with scope api");
        let events_queue_url = reading.url("EVENTS_QUEUE_URL", "the address of the SQS queue events");
        let claim_round_function = reading.text("CLAIM_ROUND_FUNCTION", "the name of the function claim-round");
        reading.end()?;
        Ok(Self { database_url, stage, gitlab_url, gitlab_token, events_queue_url, claim_round_function })
    }
}

/// The value of a variable; what is not Unicode in it is replaced, so that the checks find it set and wrong.
#[expect(clippy::disallowed_methods, reason = "this is the place that the lint names")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn table(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let table: HashMap<String, String> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        move |name| table.get(name).cloned()
    }

    const DATABASE: (&str, &str) = ("DATABASE_URL", "mysql://root:hunter2@127.0.0.1:3306/muster");

    #[test]
    fn every_problem_is_named_at_once() {
        let none = table(&[]);
        assert_eq!(AdmitConfig::from(&none).expect_err("nothing is set").problems.len(), 2);
        assert_eq!(WebhookConfig::from(&none).expect_err("nothing is set").problems.len(), 2);
        assert_eq!(RunnerConfig::from(&none).expect_err("nothing is set").problems.len(), 6);
        let all = table(&[
            ("DATABASE_URL", "postgres://x"),
            ("STAGE", "staging"),
            ("DEV_PRINCIPAL", "a b"),
            ("OPERATOR_CLAIM", "groups"),
            ("STRICT_TARGETS", "yes"),
        ]);
        let problems = AdmitConfig::from(&all).expect_err("all is wrong").problems;
        for name in ["DATABASE_URL", "STAGE", "DEV_PRINCIPAL", "OPERATOR_VALUE", "STRICT_TARGETS"] {
            assert!(problems.iter().any(|problem| problem.contains(name)), "{name} is missing in {problems:#?}");
        }
    }

    #[test]
    fn nobody_is_let_in_by_name_in_production() {
        let prod = table(&[DATABASE, ("STAGE", "prod"), ("DEV_PRINCIPAL", "dev")]);
        let problems = AdmitConfig::from(&prod).expect_err("a way around the authorizer").problems;
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("DEV_PRINCIPAL"));
        let local = table(&[DATABASE, ("STAGE", "local"), ("DEV_PRINCIPAL", "dev"), ("STRICT_TARGETS", "true")]);
        let config = AdmitConfig::from(&local).expect("valid");
        assert_eq!(config.dev_principal.map(|who| who.to_string()), Some("dev".to_owned()));
        assert!(config.strict_targets);
        // The template passes what is not set as an empty text.
        let empty = table(&[DATABASE, ("STAGE", "prod"), ("DEV_PRINCIPAL", ""), ("OPERATOR_CLAIM", ""), ("OPERATOR_VALUE", "")]);
        let config = AdmitConfig::from(&empty).expect("valid");
        assert!(config.dev_principal.is_none() && config.operators.is_none() && !config.strict_targets);
    }

    #[test]
    fn no_secret_shows_in_an_error_or_in_a_log() {
        for wrong in
            ["mysql://root:hunter2@", "mysql://root:hun/ter2@h:1/d", "mysql://root:1?hunter2=x", "hunter2", "mysql://u:hunter2@h:1"]
        {
            let error = AdmitConfig::from(&table(&[("DATABASE_URL", wrong), ("STAGE", "prod")])).expect_err(wrong);
            assert!(!format!("{error} {error:?}").contains("ter2"), "{error}");
        }
        let config = AdmitConfig::from(&table(&[DATABASE, ("STAGE", "prod")])).expect("valid");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(config.database_url.expose().contains("hunter2"));
    }

    #[test]
    fn two_webhook_secrets_are_accepted_during_a_rotation() {
        let queue = ("MR_STATUS_QUEUE_URL", "http://127.0.0.1:4566/000000000000/mr-status");
        let config = WebhookConfig::from(&table(&[("WEBHOOK_TOKEN", "old-secret-1, new-secret-2"), queue])).expect("valid");
        let tokens: Vec<_> = config.tokens.iter().map(Secret::expose).collect();
        assert_eq!(tokens, ["old-secret-1", "new-secret-2"]);
        for bad in [",", "a,", "a,b,c", " ", "é"] {
            assert!(WebhookConfig::from(&table(&[("WEBHOOK_TOKEN", bad), queue])).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_are_kept_without_a_last_slash() {
        let config = RunnerConfig::from(&table(&[
            DATABASE,
            ("STAGE", "prod"),
            ("GITLAB_URL", "https://gitlab.example.com/sub/"),
            ("GITLAB_TOKEN", "t"),
            ("EVENTS_QUEUE_URL", "https://sqs.eu-west-1.amazonaws.com/1/events"),
            ("CLAIM_ROUND_FUNCTION", "muster-claim-round"),
        ]))
        .expect("valid");
        assert_eq!(config.gitlab_url, "https://gitlab.example.com/sub");
        assert_eq!(config.stage, Stage::Prod);
    }
}
