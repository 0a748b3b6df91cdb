//! What the functions, queues and routes of the template must keep to.

use std::cell::RefCell;
use std::collections::BTreeSet;

use adapters::config::{AdmitConfig, RunnerConfig, WebhookConfig};
use serde_json::{Value, json};

use super::document::{functions, list, resources};

/// API Gateway gives up on an integration after this time.
const HTTP_API_LIMIT_S: u64 = 30;
/// An effect is leased for 90 s, and no function that performs some may live for longer.
const RUNNER_LIMIT_S: u64 = 60;
/// SQS keeps messages for no longer.
const RETENTION_MAX_S: u64 = 1_209_600;

/// The names that a configuration asks its environment for.
fn asked_by(binary: &str) -> Option<BTreeSet<String>> {
    let asked = RefCell::new(BTreeSet::new());
    let nothing = |name: &str| {
        asked.borrow_mut().insert(name.to_owned());
        None
    };
    match binary {
        "admit" => drop(AdmitConfig::from(&nothing)),
        "webhook" => drop(WebhookConfig::from(&nothing)),
        "claim-round" | "settle" | "sweep" | "ops" => drop(RunnerConfig::from(&nothing)),
        _ => return None,
    }
    Some(asked.into_inner())
}

pub fn variables(template: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    for (binary, function) in functions(template) {
        let given = function["Environment"]["Variables"].as_object().into_iter().flatten();
        let given: BTreeSet<String> = given.filter(|(_, value)| !value.is_null()).map(|(name, _)| name.clone()).collect();
        match asked_by(binary) {
            Some(asked) if asked == given => {}
            Some(asked) => breaches.push(format!("{binary} reads {asked:?} and is given {given:?}")),
            None => breaches.push(format!("no function is called {binary}")),
        }
    }
    breaches
}

pub fn time_limits(template: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    for (binary, function) in functions(template) {
        let limit_s = function["Timeout"].as_u64().unwrap_or(u64::MAX);
        let most = if matches!(binary, "admit" | "webhook") { HTTP_API_LIMIT_S - 1 } else { RUNNER_LIMIT_S };
        if limit_s > most {
            breaches.push(format!("{binary} may run for {limit_s} s, and {most} s is the most"));
        }
        for event in function["Events"].as_object().into_iter().flatten().map(|(_, event)| event) {
            match event["Type"].as_str() {
                Some("SQS") => breaches.extend(mapping(template, binary, limit_s, &event["Properties"])),
                _ if function["EventInvokeConfig"]["MaximumRetryAttempts"] != 0 => {
                    breaches.push(format!("Lambda calls {binary} again after an error; the next schedule does that"));
                }
                _ => {}
            }
        }
    }
    breaches
}

fn mapping(template: &Value, binary: &str, limit_s: u64, event: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    let queue = event["Queue"]["Fn::GetAtt"][0].as_str().unwrap_or_default();
    let queue = &template["Resources"][queue]["Properties"];
    let window_s = event["MaximumBatchingWindowInSeconds"].as_u64().unwrap_or(0);
    if queue["VisibilityTimeout"].as_u64().unwrap_or(30) < limit_s.saturating_mul(6).saturating_add(window_s) {
        breaches.push(format!("{binary}: a message turns visible while it may still be worked on"));
    }
    if queue["RedrivePolicy"]["maxReceiveCount"].as_u64().unwrap_or(0) < 5 {
        breaches.push(format!("{binary}: throttling alone makes dead letters"));
    }
    if event["FunctionResponseTypes"] != json!(["ReportBatchItemFailures"]) {
        breaches.push(format!("{binary}: what it answers about single messages is ignored"));
    }
    let most = &event["ScalingConfig"]["MaximumConcurrency"];
    let most = most["Ref"].as_str().map_or(most, |parameter| &template["Parameters"][parameter]["MinValue"]);
    if most.as_u64().unwrap_or(0) < 2 {
        breaches.push(format!("{binary}: a mapping runs at least two at a time"));
    }
    breaches
}

pub fn queues(template: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    let all: BTreeSet<&str> = resources(template, "AWS::SQS::Queue").map(|(name, _)| name).collect();
    let targets: BTreeSet<&str> = resources(template, "AWS::SQS::Queue").filter_map(|(_, queue)| dead_letters(queue)).collect();
    for (name, queue) in resources(template, "AWS::SQS::Queue") {
        let properties = &queue["Properties"];
        if properties["SqsManagedSseEnabled"] != true {
            breaches.push(format!("{name} is not encrypted"));
        }
        if targets.contains(name) {
            if properties["MessageRetentionPeriod"] != RETENTION_MAX_S {
                breaches.push(format!("{name} holds dead letters for less than SQS can"));
            }
        } else if !dead_letters(queue).is_some_and(|target| all.contains(target)) {
            breaches.push(format!("{name} has no queue for its dead letters"));
        }
    }
    let over_tls = list(&template["Resources"]["QueuesOverTls"]["Properties"]["Queues"]);
    let over_tls: BTreeSet<&str> = over_tls.into_iter().filter_map(|queue| queue["Ref"].as_str()).collect();
    if over_tls != all {
        breaches.push(format!("only {over_tls:?} are spoken to over TLS alone"));
    }
    breaches
}

fn dead_letters(queue: &Value) -> Option<&str> {
    queue.pointer("/Properties/RedrivePolicy/deadLetterTargetArn/Fn::GetAtt/0")?.as_str()
}

/// A fixed name would be overwritten by a second stack, or keep it from being made.
pub fn names(template: &Value) -> Vec<String> {
    let of_stack = |value: &Value| {
        value["Ref"] == "AWS::StackName" || value["Fn::Sub"].as_str().is_some_and(|name| name.contains("${AWS::StackName}"))
    };
    let mut breaches = Vec::new();
    for (name, resource) in template["Resources"].as_object().into_iter().flatten() {
        let properties = resource["Properties"].as_object().into_iter().flatten();
        // A Name is a name only of what AWS knows by it.
        let named = properties.filter(|(key, _)| {
            matches!(key.as_str(), "FunctionName" | "QueueName" | "LogGroupName" | "AlarmName" | "TopicName" | "DashboardName" | "RoleName")
        });
        let refers = |value: &Value| value["Ref"].is_string() || value["Fn::GetAtt"].is_array();
        let fixed = named.filter(|(_, value)| !of_stack(value) && !refers(value)).map(|(key, _)| format!("{name} has a fixed {key}"));
        breaches.extend(fixed);
        for (event, one) in resource["Properties"]["Events"].as_object().into_iter().flatten() {
            if one["Type"] == "ScheduleV2" && !of_stack(&one["Properties"]["Name"]) {
                breaches.push(format!("the schedule {event} of {name} is not named by the stack"));
            }
        }
    }
    breaches
}

pub fn ways_in(template: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    for (name, route) in resources(template, "AWS::ApiGatewayV2::Route") {
        let properties = &route["Properties"];
        let kinds = in_production(&properties["AuthorizationType"]);
        let is_webhook = properties["RouteKey"] == "POST /webhooks/gitlab";
        let closed = !kinds.is_empty() && kinds.iter().all(|kind| matches!(kind.as_str(), Some("JWT" | "AWS_IAM")));
        if !closed && !is_webhook {
            breaches.push(format!("{name} lets anybody in"));
        }
    }
    if template["Conditions"]["IsLocal"] != json!({"Fn::Equals": [{"Ref": "Stage"}, "local"]}) {
        breaches.push("IsLocal does not mean Stage=local".to_owned());
    }
    let guarded: BTreeSet<&str> = list(&template["Rules"]["OnlyLocalTakesSecretsAsParameters"]["Assertions"])
        .into_iter()
        .filter_map(|one| one["Assert"]["Fn::Equals"][0]["Ref"].as_str())
        .collect();
    if guarded != BTreeSet::from(["DatabaseUrl", "DevPrincipal", "GitlabToken", "WebhookToken"]) {
        breaches.push(format!("in production only {guarded:?} must be empty"));
    }
    let settings = &template["Resources"]["HttpStage"]["Properties"]["DefaultRouteSettings"];
    if settings["ThrottlingRateLimit"].is_null() || settings["ThrottlingBurstLimit"].is_null() {
        breaches.push("the API is not throttled".to_owned());
    }
    breaches
}

/// The values that a property may have while IsLocal does not hold.
fn in_production(value: &Value) -> Vec<&Value> {
    match value["Fn::If"].as_array().map(Vec::as_slice) {
        Some([condition, _, otherwise]) if condition == "IsLocal" => in_production(otherwise),
        Some([_, then, otherwise]) => [in_production(then), in_production(otherwise)].concat(),
        _ => vec![value],
    }
}

pub fn descriptions(template: &Value) -> Vec<String> {
    let all = ["Parameters", "Outputs"].into_iter().flat_map(|kind| template[kind].as_object().into_iter().flatten());
    let silent = all.filter(|(_, one)| one["Description"].as_str().is_none_or(|text| text.len() < 12));
    silent.map(|(name, _)| format!("{name} is not described")).collect()
}
