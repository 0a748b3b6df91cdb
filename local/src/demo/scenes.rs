//! What the demo shows: twelve requests, two good rounds, a failing pipeline and a hanging one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use local::gitlab::PipelinePlan;
use local::progress::{heading, say};
use local::stack::Stack;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, sleep};

use super::caller::{Ask, Caller};
use super::watching::Watching;
use crate::partition;

/// The pipeline of the demo's project refuses lines with this word.
const BROKEN: &str = "BROKEN";
const PIPELINE_TAKES: Duration = Duration::from_millis(800);
/// A round takes seconds; a loaded machine gets more before the demo calls it a failure.
const ROUND_LIMIT: Duration = Duration::from_secs(90);
/// Limit on a batch that shows no progress, in seconds, while the demo waits for it.
const IMPATIENT_S: u32 = 4;

pub async fn play(stack: &Stack) -> Result<()> {
    let caller = Caller::of(&stack.api)?;
    let before = caller.get("/requests?limit=1").await?;
    ensure!(
        before["requests"].as_array().is_some_and(Vec::is_empty),
        "the demo tells its story in an empty database, and the one that DATABASE_URL names holds requests already: \
         name an empty one, or unset DATABASE_URL"
    );
    let mut watching = Watching::new(stack, &caller);
    stack.stand_in()?.set_pipeline(ordinary_pipeline());
    partition::set(stack, partition::NO_PROGRESS_S).await?;
    scheduled_round(stack, &caller, &mut watching).await?;
    manual_round(stack, &caller, &mut watching).await?;
    failing_pipeline(stack, &caller, &mut watching).await?;
    hanging_pipeline(stack, &caller, &mut watching).await
}

fn ordinary_pipeline() -> PipelinePlan {
    PipelinePlan::FailIfContent { substring: BROKEN.to_owned(), after: PIPELINE_TAKES }
}

/// Six grants, a duplicate and a refusal; then a round that EventBridge Scheduler starts.
async fn scheduled_round(stack: &Stack, caller: &Caller, watching: &mut Watching<'_>) -> Result<()> {
    heading("requests, and a scheduled round");
    let in_30_days = (OffsetDateTime::now_utc() + time::Duration::days(30))
        .replace_nanosecond(0)
        .context("no whole second")?
        .format(&Rfc3339)
        .context("the date of an expiry cannot be written")?;
    let ana = Ask::grant("demo-1", "ana@example.com", "billing-db");
    let mut operations = vec![caller.admit(&ana).await?];
    for ask in [
        Ask::grant("demo-2", "bob@example.com", "billing-db").with("attributes", json!({ "role": "reader" })),
        Ask::grant("demo-3", "chen@example.com", "prod-cluster")
            .with("priority", json!(5))
            .with("approval_ref", json!("CHG-1042"))
            .noting("priority 5"),
        Ask::grant("demo-4", "dana@example.com", "prod-cluster").with("expires_at", json!(in_30_days)).noting("for 30 days"),
        Ask::grant("demo-5", "eve@example.com", "warehouse")
            .with(
                "change",
                json!({ "files": [
                    { "path": "access/warehouse/eve.yaml", "content": "role: analyst\n", "base": "absent" },
                    { "path": "access/warehouse/eve.md", "content": "Eve audits the stock.\n", "base": "absent" },
                ] }),
            )
            .noting("her own files"),
        Ask::grant("demo-6", "farid@example.com", "warehouse"),
    ] {
        operations.push(caller.admit(&ask).await?);
    }
    let again = caller.ask(&ana.noting("sent again"), 200).await?;
    ensure!(again["operation_id"] == json!(operations[0]), "a repeated request became another operation: {again}");
    let forbidden = Ask::grant("demo-7", "mallory@example.com", "warehouse")
        .with("change", json!({ "files": [{ "path": ".gitlab-ci.yml", "content": "script: [true]\n" }] }))
        .noting("writes CI rules");
    caller.ask(&forbidden, 400).await?;

    let schedule = json!({
        "name": "demo-round",
        "seconds": 3,
        "function_arn": stack.output("ClaimRoundFunctionArn")?,
        "role_arn": stack.output("ClaimRoundScheduleRoleArn")?,
        "input": r#"{"source":"aws.scheduler","detail-type":"Scheduled Event"}"#,
    });
    stack.cloud.ask("once", &schedule).await.context("the one-time schedule cannot be made")?;
    say("EventBridge Scheduler will start a round in 3 s");
    watching.until(&operations, "MERGED", ROUND_LIMIT).await
}

/// A revoke and a grant; then a round that somebody starts by hand.
async fn manual_round(stack: &Stack, caller: &Caller, watching: &mut Watching<'_>) -> Result<()> {
    heading("a revoke, and a manual round");
    let operations = [
        caller.admit(&Ask::revoke("demo-8", "ana@example.com", "billing-db")).await?,
        caller.admit(&Ask::grant("demo-9", "hana@example.com", "warehouse")).await?,
    ];
    round(stack).await?;
    watching.until(&operations, "MERGED", ROUND_LIMIT).await
}

/// A request whose content the pipeline refuses is found guilty; nothing of it reaches the branch.
async fn failing_pipeline(stack: &Stack, caller: &Caller, watching: &mut Watching<'_>) -> Result<()> {
    heading("a pipeline that fails");
    let broken = Ask::grant("demo-10", "ivan@example.com", "warehouse")
        .with("change", json!({ "files": [{ "path": "access/warehouse/ivan.yaml", "content": format!("role: {BROKEN}\n") }] }))
        .noting("its pipeline will fail");
    let operation = caller.admit(&broken).await?;
    round(stack).await?;
    watching.until(std::slice::from_ref(&operation), "FAILED", ROUND_LIMIT).await?;
    tell_request(caller, &operation).await
}

/// A batch without progress is given up, its request waits again without blame, and lands with the next round.
async fn hanging_pipeline(stack: &Stack, caller: &Caller, watching: &mut Watching<'_>) -> Result<()> {
    heading("a pipeline that hangs");
    stack.stand_in()?.set_pipeline(PipelinePlan::Hang);
    partition::set(stack, IMPATIENT_S).await?;
    let operation = caller.admit(&Ask::grant("demo-11", "jun@example.com", "billing-db")).await?;
    let operations = [operation];
    round(stack).await?;
    watching.until(&operations, "IN_BATCH", ROUND_LIMIT).await?;
    say(format!("the sweep gives the batch up after {IMPATIENT_S} s without progress"));
    let started = Instant::now();
    while caller.status(&operations[0]).await? != "WAITING" {
        watching.tell_merge_requests()?;
        ensure!(started.elapsed() < ROUND_LIMIT, "the sweep did not give the batch up within {ROUND_LIMIT:?}");
        sleep(Duration::from_secs(1)).await;
        stack.cloud.invoke(&stack.function("sweep"), &json!({})).await?;
    }
    watching.tell_merge_requests()?;
    say("its request waits again; the pipelines are healthy from now on");
    stack.stand_in()?.set_pipeline(ordinary_pipeline());
    partition::set(stack, partition::NO_PROGRESS_S).await?;
    round(stack).await?;
    watching.until(&operations, "MERGED", ROUND_LIMIT).await
}

/// Starts a round by hand, as an operator or a console would.
async fn round(stack: &Stack) -> Result<()> {
    let answer = stack.cloud.invoke(&stack.function("claim-round"), &json!({})).await?;
    for round in answer["rounds"].as_array().with_context(|| format!("claim-round answered no rounds: {answer}"))? {
        let members = round["members"].as_array().map_or(0, Vec::len);
        say(format!(
            "invoke claim-round {{}}: partition {} {}, {members} members, merge request {}",
            round["partition"].as_str().unwrap_or("?"),
            round["outcome"].as_str().unwrap_or("?"),
            round["merge_request"]["url"].as_str().unwrap_or("not open yet"),
        ));
    }
    Ok(())
}

async fn tell_request(caller: &Caller, operation: &str) -> Result<()> {
    let request = caller.get(&format!("/requests/{operation}")).await?;
    say(format!("GET /requests/{operation}\n{}", serde_json::to_string_pretty(&request)?));
    Ok(())
}
