//! template.yaml is what AWS runs; here it is held against the code and the documents that it must agree with.
//!
//! Each rule tells its breaches. It has to be silent on the template as it is, and to speak up on every mutation.

mod document;
mod permissions;
mod rules;
mod signals;

use serde_json::{Value, json};

use document::{documents, template};

/// Breaches of one rule, in sentences.
type Rule = fn(&Value) -> Vec<String>;

/// A way to break the template: where, as a JSON pointer, and what stands there afterwards (null: nothing).
type Mutation = (&'static str, Value);

fn hold(rule: Rule, mutations: &[Mutation]) {
    let template = template();
    assert_eq!(rule(&template), Vec::<String>::new());
    for (place, value) in mutations {
        let mut broken = template.clone();
        let spot = broken.pointer_mut(place).unwrap_or_else(|| panic!("the template has no {place}"));
        assert_ne!(spot, value, "{place} is that already");
        *spot = value.clone();
        assert!(!rule(&broken).is_empty(), "nobody minds {place} = {value}");
    }
}

#[test]
fn every_function_gets_the_variables_that_its_code_reads() {
    hold(
        rules::variables,
        &[
            ("/Resources/AdmitFunction/Properties/Environment/Variables/STAGE", Value::Null),
            ("/Resources/WebhookFunction/Properties/Environment/Variables", json!({"WEBHOOK_TOKEN": "", "MR_STATUS_QUEUE": ""})),
            ("/Resources/OpsFunction/Properties/Environment/Variables/GITLAB_URL", Value::Null),
            ("/Resources/SettleFunction/Metadata/BuildProperties/Binary", json!("settler")),
        ],
    );
}

#[test]
fn every_function_ends_before_what_waits_for_it() {
    hold(
        rules::time_limits,
        &[
            ("/Resources/AdmitFunction/Properties/Timeout", json!(30)),
            ("/Resources/WebhookFunction/Properties/Timeout", Value::Null),
            ("/Resources/SettleFunction/Properties/Timeout", json!(61)),
            ("/Resources/SweepFunction/Properties/Timeout", json!(90)),
            ("/Resources/MrStatusQueue/Properties/VisibilityTimeout", json!(359)),
            ("/Resources/MrStatusQueue/Properties/RedrivePolicy/maxReceiveCount", json!(4)),
            ("/Resources/SettleFunction/Properties/Events/MrStatus/Properties/FunctionResponseTypes", json!([])),
            ("/Resources/SettleFunction/Properties/Events/MrStatus/Properties/ScalingConfig/MaximumConcurrency", json!(1)),
            ("/Parameters/SettleConcurrency/MinValue", json!(1)),
            ("/Resources/ClaimRoundFunction/Properties/EventInvokeConfig/MaximumRetryAttempts", json!(2)),
            ("/Resources/SweepFunction/Properties/EventInvokeConfig", Value::Null),
        ],
    );
}

#[test]
fn no_message_is_lost_or_left_in_the_clear() {
    hold(
        rules::queues,
        &[
            ("/Resources/EventsQueue/Properties/RedrivePolicy", Value::Null),
            ("/Resources/MrStatusQueue/Properties/RedrivePolicy/deadLetterTargetArn", json!({"Fn::GetAtt": ["Elsewhere", "Arn"]})),
            ("/Resources/MrStatusDeadLetters/Properties/SqsManagedSseEnabled", json!(false)),
            ("/Resources/EventsDeadLetters/Properties/MessageRetentionPeriod", json!(345_600)),
            ("/Resources/QueuesOverTls/Properties/Queues", json!([{"Ref": "MrStatusQueue"}])),
        ],
    );
}

#[test]
fn two_stacks_in_one_account_share_no_name() {
    hold(
        rules::names,
        &[
            ("/Resources/SweepFunction/Properties/Events/Sweeps/Properties/Name", Value::Null),
            ("/Resources/OpsFunction/Properties/FunctionName", json!("ops")),
            ("/Resources/EventsQueue/Properties/QueueName", json!({"Fn::Sub": "events"})),
            ("/Resources/FunctionLogs/Properties/LogGroupName", json!("/muster")),
        ],
    );
}

#[test]
fn only_the_webhook_is_open_and_every_way_in_is_throttled() {
    hold(
        rules::ways_in,
        &[
            ("/Resources/PostRequestsRoute/Properties/AuthorizationType", json!("NONE")),
            ("/Resources/GetStatusRoute/Properties/AuthorizationType", Value::Null),
            ("/Conditions/IsLocal", json!({"Fn::Equals": [{"Ref": "Stage"}, "prod"]})),
            ("/Resources/HttpStage/Properties/DefaultRouteSettings/ThrottlingRateLimit", Value::Null),
            ("/Resources/WebhookRoute/Properties/RouteKey", json!("POST /webhook")),
            ("/Rules/OnlyLocalTakesSecretsAsParameters", Value::Null),
        ],
    );
}

#[test]
fn every_role_serves_one_function_and_allows_what_its_code_does() {
    hold(
        permissions::roles,
        &[
            ("/Resources/OpsFunction/Properties/Role", json!({"Fn::GetAtt": ["SweepRole", "Arn"]})),
            ("/Resources/AdmitFunction/Properties/Role", Value::Null),
            ("/Resources/AdmitRole/Properties/Policies/0/PolicyDocument/Statement/0/Resource", json!("*")),
            ("/Resources/WebhookRole/Properties/Policies/0/PolicyDocument/Statement/1/Action", json!("sqs:*")),
            (
                "/Resources/WebhookRole/Properties/Policies/0/PolicyDocument/Statement/1/Resource",
                json!({"Fn::GetAtt": ["EventsQueue", "Arn"]}),
            ),
            ("/Resources/SweepRole/Properties/Policies/0/PolicyDocument/Statement/2", json!({"Effect": "Allow"})),
            ("/Resources/SettleRole/Properties/Policies/0/PolicyDocument/Statement/1/Action", json!(["sqs:ReceiveMessage"])),
            ("/Resources/VpcInterfaces/Properties/PolicyDocument/Statement/1", json!({"Effect": "Allow"})),
            ("/Resources/OperatorPolicy/Properties/PolicyDocument/Statement/0/Resource", json!("*")),
        ],
    );
}

#[test]
fn every_alarm_says_what_to_do() {
    hold(
        signals::alarms,
        &[
            ("/Resources/SweepSilentAlarm/Properties/AlarmName", json!({"Fn::Sub": "${AWS::StackName}-quiet"})),
            ("/Resources/BatchBlockedAlarm/Properties/AlarmDescription", json!("A batch is blocked.")),
            ("/Resources/OutboxLagAlarm/Properties/AlarmActions", json!([])),
            ("/Resources/FunctionErrorsAlarm", Value::Null),
            ("/Resources/WebhookSilentAlarm/Condition", Value::Null),
            ("/Resources/OldestWaitingAlarm/Properties/MetricName", json!("OldestWaiting")),
        ],
    );
}

#[test]
fn every_metric_is_made_of_what_the_code_logs() {
    hold(
        signals::metrics,
        &[
            ("/Resources/DatabaseFaultsMetric/Properties/FilterPattern", json!("{ $.event = \"faults\" }")),
            (
                "/Resources/BatchesClaimedMetric/Properties/FilterPattern",
                json!("{ ($.event = \"outcome\") && ($.unit = \"claims\") && ($.outcome = \"claimed\") }"),
            ),
            ("/Resources/OutboxLagSecondsMetric/Properties/MetricTransformations/0/MetricValue", json!("$.lag")),
            ("/Resources/RequestsWaitingMetric/Properties/MetricTransformations/0/MetricName", json!("Waiting")),
            ("/Resources/LoggedAlarmsMetric/Properties/LogGroupName", json!({"Ref": "ApiLogs"})),
        ],
    );
}

#[test]
fn every_parameter_and_output_is_described() {
    hold(rules::descriptions, &[("/Parameters/SweepSchedule/Description", json!("")), ("/Outputs/WebhookUrl/Description", Value::Null)]);
}

#[test]
fn every_alarm_of_the_code_has_its_entry_in_the_runbook() {
    let logged = signals::logged("alarm");
    assert!(logged.len() > 8, "the search finds nothing any more: {logged:?}");
    assert_eq!(documents::headings("docs/RUNBOOK.md", "### "), logged, "left: the runbook, right: the code");
}

#[test]
fn every_event_of_the_code_is_told_in_the_metrics() {
    let logged = signals::logged("event");
    assert!(logged.len() > 15, "the search finds nothing any more: {logged:?}");
    assert_eq!(documents::first_cells("docs/METRICS.md", "## Events"), logged, "left: the document, right: the code");
}
