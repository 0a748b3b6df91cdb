//! The function as a process of its own, as its plan tells it.

use std::sync::Arc;
use std::time::Duration;

use adapters::forge::gitlab::{GitLab, GitLabOptions};
use adapters::relay::Relay;
use lambda_http::request::from_str;
use shared::{Store, StoreOptions};

use super::plan::{Function, Plan, VARIABLE};
use super::spool::Spool;
use super::turnstile::Turnstile;
use crate::commands::{REQUESTER, principal};
use crate::journey::{TOKEN, stop_at};

/// Runs the function that the variable names; without one, this process is nobody's child and does nothing.
///
/// # Panics
/// When the function does not answer.
pub async fn run() {
    let Some(plan) = local::environment::variable(VARIABLE) else { return };
    let plan: Plan = serde_json::from_str(&plan).expect("a plan is made by `Plan` itself");
    let turnstile = Arc::new(Turnstile::new(plan.halt, &plan.log).expect("the log of boundaries can be made"));
    let options = StoreOptions { session: plan.session.clone(), probe: Some(turnstile.clone()), ..StoreOptions::new(&plan.database_url) };
    let store = Store::new(options).expect("a well-formed address");
    let gitlab = GitLabOptions {
        base_url: plan.gitlab_url.clone(),
        token: TOKEN.into(),
        connect_timeout: Duration::from_secs(3),
        call_timeout: Duration::from_millis(plan.call_timeout_ms),
    };
    let forge = GitLab::new(gitlab).expect("a well-formed address").probed(turnstile.clone());
    let relay = Relay { store, forge, outbound: Spool::new(&plan.spool, turnstile) };
    let event = plan.event;
    let answer = match plan.function {
        Function::Admit => {
            let state =
                admit::AdmitState { store: relay.store, operators: None, dev_principal: Some(principal(REQUESTER)), strict_targets: false };
            let request = from_str(&event.to_string()).expect("an event of API Gateway");
            let answer = admit::handle(&state, request).await.expect("every request is answered");
            format!("{} {:?}", answer.status(), answer.body())
        }
        Function::ClaimRound => format!("{:?}", claim_round::handle(&relay, event, stop_at()).await.expect("a round always answers")),
        Function::Settle => format!("{:?}", settle::handle(&relay, event, stop_at()).await.expect("an SQS event is answered")),
        Function::Sweep => format!("{:?}", sweep::handle(&relay, event, stop_at()).await.expect("a sweep always answers")),
        Function::Ops => format!("{:?}", ops::handle(&relay, event, stop_at()).await.expect("the database answers")),
    };
    println!("{answer}");
}
