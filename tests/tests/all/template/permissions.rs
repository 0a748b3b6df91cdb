//! Least privilege: what a role allows follows from what its function is told of, and nothing is allowed on everything.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::document::{functions, list, resources};

/// Actions of EC2 that Lambda needs to put a function into a VPC, on resources that do not exist yet; a second statement
/// of the same policy denies them to the function's code.
const REASONED_STAR: &str = "VpcInterfaces";

/// One action on one resource, the latter as its JSON text.
type Right = (String, String);

pub fn roles(template: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut taken = BTreeSet::new();
    for (binary, function) in functions(template) {
        let Some(role) = function.pointer("/Role/Fn::GetAtt/0").and_then(Value::as_str) else {
            breaches.push(format!("{binary} has no role of its own"));
            continue;
        };
        if !taken.insert(role) {
            breaches.push(format!("{role} serves more than one function"));
        }
        let policies = list(&template["Resources"][role]["Properties"]["Policies"]);
        let allowed: BTreeSet<Right> = policies.iter().flat_map(|one| rights(&one["PolicyDocument"])).collect();
        let needed = needed_by(binary, function);
        breaches
            .extend(allowed.difference(&needed).map(|(action, on)| format!("{role} allows {action} on {on}, which {binary} does not do")));
        breaches.extend(needed.difference(&allowed).map(|(action, on)| format!("{binary} is not allowed {action} on {on}")));
        let managed = &template["Resources"][role]["Properties"]["ManagedPolicyArns"];
        if *managed != json!({"Fn::If": ["InVpc", [{"Ref": REASONED_STAR}], {"Ref": "AWS::NoValue"}]}) {
            breaches.push(format!("{role} takes policies from elsewhere: {managed}"));
        }
    }
    for (name, policy) in resources(template, "AWS::IAM::ManagedPolicy") {
        let statements = list(&policy["Properties"]["PolicyDocument"]["Statement"]);
        let everything = |effect| statements.iter().filter(move |one| one["Effect"] == effect && one["Resource"] == "*");
        let denied: Vec<&Value> = everything("Deny").flat_map(|one| list(&one["Action"])).collect();
        for action in everything("Allow").flat_map(|one| list(&one["Action"])) {
            if name != REASONED_STAR || !denied.contains(&action) {
                breaches.push(format!("{name} allows {action} on everything"));
            }
        }
    }
    breaches
}

/// What a function does follows from what it is told of: its logs, the queues that it knows, the function that it starts.
fn needed_by(binary: &str, function: &Value) -> BTreeSet<Right> {
    let variables = &function["Environment"]["Variables"];
    let arn = |resource: &str| json!({"Fn::GetAtt": [resource, "Arn"]}).to_string();
    let mut needed = BTreeSet::new();
    for action in ["logs:CreateLogStream", "logs:PutLogEvents"] {
        needed.insert((action.to_owned(), arn("FunctionLogs")));
    }
    for variable in ["MR_STATUS_QUEUE_URL", "EVENTS_QUEUE_URL"] {
        if let Some(queue) = variables[variable]["Ref"].as_str() {
            needed.insert(("sqs:SendMessage".to_owned(), arn(queue)));
            // The doctor looks at the queue that it stands on.
            if binary == "ops" {
                needed.insert(("sqs:GetQueueAttributes".to_owned(), arn(queue)));
            }
        }
    }
    if let Some(name) = variables["CLAIM_ROUND_FUNCTION"]["Fn::Sub"].as_str() {
        let on = json!({"Fn::Sub": format!("arn:${{AWS::Partition}}:lambda:${{AWS::Region}}:${{AWS::AccountId}}:function:{name}")});
        needed.insert(("lambda:InvokeFunction".to_owned(), on.to_string()));
    }
    for (_, event) in function["Events"].as_object().into_iter().flatten() {
        if let Some(queue) = event.pointer("/Properties/Queue/Fn::GetAtt/0").and_then(Value::as_str) {
            for action in ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"] {
                needed.insert((action.to_owned(), arn(queue)));
            }
        }
    }
    needed
}

fn rights(policy: &Value) -> Vec<Right> {
    let allowing = list(&policy["Statement"]).into_iter().filter(|one| one["Effect"] == "Allow");
    allowing
        .flat_map(|one| {
            let on = list(&one["Resource"]);
            let actions = list(&one["Action"]);
            let pair = |action: &Value, on: &Value| (action.as_str().unwrap_or_default().to_owned(), on.to_string());
            actions.iter().flat_map(|action| on.iter().map(move |on| pair(action, on))).collect::<Vec<_>>()
        })
        .collect()
}
