//! What a queue's attributes tell of it.

use std::collections::HashMap;

use aws_sdk_sqs::types::QueueAttributeName as Name;

/// Seconds. A reader that has not answered by then is taken for dead, and its message is handed out again.
const VISIBILITY_MIN_S: u64 = 30;
/// Seconds. A reader that is down over a night and a day loses nothing.
const RETENTION_MIN_S: u64 = 86_400;

pub(super) fn problems_of(url: &str, attributes: Option<&HashMap<Name, String>>) -> Vec<String> {
    let read = |name: Name| attributes.and_then(|all| all.get(&name)).map(String::as_str);
    let number = |name: Name| read(name).and_then(|text| text.parse::<u64>().ok());
    let mut problems = Vec::new();
    if !read(Name::RedrivePolicy).is_some_and(|policy| policy.contains("deadLetterTargetArn")) {
        problems.push(format!("the queue {url} has no dead-letter queue, so a message that its reader cannot take blocks it or is lost"));
    }
    if let Some(seconds) = number(Name::VisibilityTimeout).filter(|seconds| *seconds < VISIBILITY_MIN_S) {
        problems
            .push(format!("the queue {url} hands a message out again after {seconds} s; give its readers at least {VISIBILITY_MIN_S} s"));
    }
    if let Some(seconds) = number(Name::MessageRetentionPeriod).filter(|seconds| *seconds < RETENTION_MIN_S) {
        problems.push(format!("the queue {url} forgets a message after {seconds} s; keep it for at least {RETENTION_MIN_S} s"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(of: &[(Name, &str)]) -> Vec<String> {
        let attributes = of.iter().map(|(name, value)| (name.clone(), (*value).to_owned())).collect();
        problems_of("q", Some(&attributes))
    }

    #[test]
    fn a_queue_without_dead_letters_or_with_a_short_memory_is_named() {
        let dead = (Name::RedrivePolicy, r#"{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:dead","maxReceiveCount":"5"}"#);
        assert!(problems(&[dead.clone(), (Name::VisibilityTimeout, "30"), (Name::MessageRetentionPeriod, "86400")]).is_empty());
        assert!(problems(&[])[0].contains("no dead-letter queue"));
        assert!(problems(&[dead.clone(), (Name::VisibilityTimeout, "5")])[0].contains("again after 5 s"));
        assert!(problems(&[dead, (Name::MessageRetentionPeriod, "60")])[0].contains("forgets"));
    }
}
