//! Who calls, as the authorizer in front of this function says.

use adapters::config::OperatorRule;
use adapters::problem::Problem;
use lambda_http::aws_lambda_events::apigw::ApiGatewayRequestAuthorizer;
use lambda_http::request::RequestContext;
use lambda_http::{Request, RequestExt};
use shared::ids::Principal;

use crate::{AdmitState, problems};

/// An authentic caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub principal: Principal,
    pub is_operator: bool,
}

impl Caller {
    pub fn of(state: &AdmitState, request: &Request) -> Result<Self, Problem> {
        let authorizer = match request.request_context_ref() {
            Some(RequestContext::ApiGatewayV2(context)) => context.authorizer.as_ref(),
            _ => None,
        };
        identify(authorizer, state.dev_principal.as_ref(), state.operators.as_ref())
    }

    /// May this caller read, withdraw and close what `requester` asked for?
    pub fn may_act_for(&self, requester: &str) -> bool {
        self.is_operator || self.principal.as_str() == requester
    }

    /// Whose requests a list shows: `None` means everybody's.
    pub fn only_own(&self) -> Option<Principal> {
        (!self.is_operator).then(|| self.principal.clone())
    }
}

fn identify(
    authorizer: Option<&ApiGatewayRequestAuthorizer>,
    dev_principal: Option<&Principal>,
    operators: Option<&OperatorRule>,
) -> Result<Caller, Problem> {
    if let Some(claims) = authorizer.and_then(|one| one.jwt.as_ref()).map(|jwt| &jwt.claims) {
        let sub = claims.get("sub").ok_or_else(|| problems::no_principal("the token has no claim sub"))?;
        let claim = operators.and_then(|rule| claims.get(&rule.claim));
        return caller(sub, operators, claim.map(String::as_str));
    }
    if let Some(iam) = authorizer.and_then(|one| one.iam.as_ref()) {
        let arn = iam.user_arn.as_deref().ok_or_else(|| problems::no_principal("the signature names no user ARN"))?;
        // What IAM says of a caller takes the place of claims.
        let claim = operators.and_then(|rule| match rule.claim.as_str() {
            "userArn" => iam.user_arn.as_deref(),
            "userId" => iam.user_id.as_deref(),
            "accountId" => iam.account_id.as_deref(),
            "principalOrgId" => iam.principal_org_id.as_deref(),
            _ => None,
        });
        return caller(arn, operators, claim);
    }
    match dev_principal {
        Some(principal) => caller(principal.as_str(), operators, Some(principal.as_str())),
        None => Err(problems::no_principal("no authorizer vouches for the caller")),
    }
}

fn caller(name: &str, operators: Option<&OperatorRule>, claim: Option<&str>) -> Result<Caller, Problem> {
    let principal = Principal::parse(name).map_err(|why| problems::no_principal(&why.to_string()))?;
    if is_reserved(&principal) {
        return Err(problems::no_principal("that name is Muster's own"));
    }
    let is_operator = operators.zip(claim).is_some_and(|(rule, claim)| rule.is_met_by(claim));
    Ok(Caller { principal, is_operator })
}

/// What Muster does by itself it does under these names: no caller may pass for it.
fn is_reserved(principal: &Principal) -> bool {
    let muster = Principal::muster();
    *principal == muster || principal.as_str().strip_prefix(muster.as_str()).is_some_and(|rest| rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn authorizer(context: serde_json::Value) -> ApiGatewayRequestAuthorizer {
        serde_json::from_value(context).unwrap()
    }

    fn rule(claim: &str, value: &str) -> OperatorRule {
        OperatorRule { claim: claim.into(), value: value.into() }
    }

    #[test]
    fn a_token_names_its_bearer_and_maybe_an_operator() {
        let ops = rule("groups", "ops");
        let alice = authorizer(json!({"jwt": {"claims": {"sub": "alice", "groups": "[dev ops]"}, "scopes": null}}));
        let bob = authorizer(json!({"jwt": {"claims": {"sub": "bob", "groups": "[dev]"}}}));
        let found = identify(Some(&alice), None, Some(&ops)).unwrap();
        assert_eq!((found.principal.as_str(), found.is_operator), ("alice", true));
        assert!(!identify(Some(&bob), None, Some(&ops)).unwrap().is_operator);
        assert!(!identify(Some(&alice), None, None).unwrap().is_operator, "without a rule nobody is");
    }

    #[test]
    fn a_signature_names_an_arn() {
        let arn = "arn:aws:sts::123456789012:assumed-role/deploy/session-1";
        let signed = authorizer(json!({"iam": {"userArn": arn, "accountId": "123456789012"}}));
        let found = identify(Some(&signed), None, Some(&rule("groups", "ops"))).unwrap();
        assert_eq!((found.principal.as_str(), found.is_operator), (arn, false));
        assert!(identify(Some(&signed), None, Some(&rule("userArn", arn))).unwrap().is_operator);
    }

    #[test]
    fn nobody_is_taken_for_somebody() {
        let nobody = [
            None,
            Some(authorizer(json!({"jwt": {"claims": {"groups": "ops"}}}))),
            Some(authorizer(json!({"jwt": {"claims": {"sub": "a b"}}}))),
            Some(authorizer(json!({"jwt": {"claims": {"sub": ""}}}))),
            Some(authorizer(json!({"jwt": {"claims": {"sub": "muster"}}}))),
            Some(authorizer(json!({"jwt": {"claims": {"sub": "muster:expiry"}}}))),
            Some(authorizer(json!({"iam": {}}))),
        ];
        for authorizer in nobody {
            assert_eq!(identify(authorizer.as_ref(), None, None).unwrap_err().kind.status, 401, "{authorizer:?}");
        }
    }

    #[test]
    fn the_developer_stands_in_only_where_nobody_vouches() {
        let dev = Principal::parse("dev").unwrap();
        let found = identify(None, Some(&dev), Some(&rule("groups", "dev"))).unwrap();
        assert_eq!((found.principal.as_str(), found.is_operator), ("dev", true));
        assert!(!identify(None, Some(&dev), Some(&rule("groups", "ops"))).unwrap().is_operator);
        let alice = authorizer(json!({"jwt": {"claims": {"sub": "alice"}}}));
        assert_eq!(identify(Some(&alice), Some(&dev), None).unwrap().principal.as_str(), "alice");
    }

    #[test]
    fn only_the_requester_and_operators_may_act() {
        let caller = |is_operator| Caller { principal: Principal::parse("alice").unwrap(), is_operator };
        assert!(caller(false).may_act_for("alice") && !caller(false).may_act_for("bob") && caller(true).may_act_for("bob"));
        assert_eq!(caller(true).only_own(), None);
    }
}
