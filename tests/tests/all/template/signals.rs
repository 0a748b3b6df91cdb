//! Alarms, the metrics that they watch, and the log lines that these metrics are made of.

use std::collections::BTreeSet;

use serde_json::Value;

use super::document::{documents, list, resources, sources};

const OWN_NAMESPACE: &str = "Muster/${AWS::StackName}";

pub fn alarms(template: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    let made: BTreeSet<&str> = resources(template, "AWS::Logs::MetricFilter").filter_map(|(_, one)| metric(one)).collect();
    let mut named = BTreeSet::new();
    for (name, alarm) in resources(template, "AWS::CloudWatch::Alarm") {
        let properties = &alarm["Properties"];
        let slug = properties["AlarmName"]["Fn::Sub"].as_str().and_then(|text| text.strip_prefix("${AWS::StackName}-")).unwrap_or_default();
        named.insert(slug.to_owned());
        if !properties["AlarmDescription"].as_str().unwrap_or_default().ends_with(&format!("See docs/RUNBOOK.md#{slug}")) {
            breaches.push(format!("{name} does not say where to read on"));
        }
        if list(&properties["AlarmActions"]).is_empty() {
            breaches.push(format!("{name} tells nobody"));
        }
        if !properties["Metrics"].is_null() && alarm["Condition"] != "NotLocal" {
            breaches.push(format!("{name} computes, which the local cloud refuses with the whole stack"));
        }
        let watched = list(&properties["Metrics"]).into_iter().map(|one| &one["MetricStat"]["Metric"]).chain([properties]);
        let own = watched.filter(|one| one["Namespace"]["Fn::Sub"] == OWN_NAMESPACE);
        for metric in own.filter_map(|one| one["MetricName"].as_str()) {
            if !made.contains(metric) {
                breaches.push(format!("{name} watches {metric}, which nothing makes"));
            }
        }
    }
    let told = documents::headings("docs/RUNBOOK.md", "## ");
    let told: BTreeSet<_> = told.into_iter().filter(|heading| !heading.contains(' ')).collect();
    if told != named {
        breaches.push(format!("the runbook has entries for {told:?}, and the template alarms {named:?}"));
    }
    breaches
}

pub fn metrics(template: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    let sources = sources();
    let in_code = |text: &str| sources.iter().any(|source| source.contains(text));
    let mut made = BTreeSet::new();
    for (name, filter) in resources(template, "AWS::Logs::MetricFilter") {
        let properties = &filter["Properties"];
        made.extend(metric(filter).map(str::to_owned));
        if properties["LogGroupName"]["Ref"] != "FunctionLogs" {
            breaches.push(format!("{name} does not look where the functions log"));
        }
        for (field, value) in compared(properties["FilterPattern"].as_str().unwrap_or_default()) {
            let known = match field {
                "event" => in_code(&format!("event = \"{value}\"")),
                "unit" => in_code(&format!("const NAME: &'static str = \"{value}\";")),
                "outcome" => in_code(&format!("=> \"{value}\"")),
                _ => false,
            };
            if !known {
                breaches.push(format!("{name} waits for {field} = {value}, which no line has"));
            }
        }
        let value = properties["MetricTransformations"][0]["MetricValue"].as_str().unwrap_or_default();
        if let Some(field) = value.strip_prefix("$.")
            && !in_code(&format!(" {field} = "))
        {
            breaches.push(format!("{name} counts {field}, which no line has"));
        }
    }
    let told = documents::first_cells("docs/METRICS.md", "## Metrics");
    if told != made {
        breaches.push(format!("METRICS.md tells {told:?}, and the template makes {made:?}"));
    }
    breaches
}

fn metric(filter: &Value) -> Option<&str> {
    filter.pointer("/Properties/MetricTransformations/0/MetricName")?.as_str()
}

/// `$.field = "value"` of a pattern.
fn compared(pattern: &str) -> impl Iterator<Item = (&str, &str)> {
    pattern.split("$.").skip(1).filter_map(|part| {
        let (field, rest) = part.split_once(" = \"")?;
        Some((field, rest.split('"').next()?))
    })
}

/// Every value that a log line of the code has under this field.
pub fn logged(field: &str) -> BTreeSet<String> {
    let mark = format!("{field} = \"");
    let sources = sources();
    let values = sources.iter().flat_map(|source| source.split(&mark).skip(1)).filter_map(|rest| rest.split('"').next());
    values.map(str::to_owned).collect()
}
