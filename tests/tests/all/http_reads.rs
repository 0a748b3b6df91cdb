//! Lists, batches and the state of everything.

use muster_tests::*;
use serde_json::json;
use shared::ids::BatchId;

use crate::http::{ALICE, Api, BOB, OLGA};

#[tokio::test]
async fn a_list_shows_everybody_their_own_and_operators_all() {
    let world = World::new().await;
    let api = Api::of(&world);
    let mut of_alice = vec![api.grant(ALICE, "s1").await, api.grant(ALICE, "s2").await];
    let of_bob = api.grant(BOB, "s3").await;
    of_alice.reverse();
    assert_eq!(api.get(ALICE, "/requests").await.each("requests", "operation_id"), of_alice, "newest first");
    assert_eq!(api.get(BOB, "/requests").await.each("requests", "operation_id"), std::slice::from_ref(&of_bob));
    let all = api.get(OLGA, "/requests").await;
    assert_eq!(all.each("requests", "operation_id"), [of_bob.as_str(), &of_alice[0], &of_alice[1]]);
    assert_eq!(all.body["next_cursor"], json!(null));
    for who in [ALICE, OLGA] {
        assert_eq!(api.get(who, "/requests?subject=s2").await.each("requests", "operation_id"), of_alice[..1]);
        assert_eq!(api.get(who, "/requests?subject=s1&target=db&status=WAITING").await.each("requests", "operation_id"), of_alice[1..]);
        assert_eq!(api.get(who, "/requests?target=elsewhere").await.each("requests", "operation_id"), [""; 0]);
        assert_eq!(api.get(who, "/requests?status=MERGED").await.each("requests", "operation_id"), [""; 0]);
        assert_eq!(api.get(who, "/requests?subject=s1&status=MERGED").await.each("requests", "operation_id"), [""; 0]);
    }
    assert_eq!(api.get(ALICE, "/requests?subject=s3").await.each("requests", "operation_id"), [""; 0]);
    assert_eq!(api.get(OLGA, "/requests?target=db").await.each("requests", "operation_id").len(), 3);
    assert_eq!(api.get(OLGA, "/requests?status=WAITING").await.each("requests", "operation_id").len(), 3);
}

#[tokio::test]
async fn pages_of_a_list_hold_every_request_once() {
    let world = World::new().await;
    let api = Api::of(&world);
    let mut admitted = Vec::new();
    for number in 0..5 {
        admitted.insert(0, api.grant(ALICE, &format!("s{number}")).await);
    }
    for filter in ["", "target=db&", "status=WAITING&"] {
        for who in [ALICE, OLGA] {
            let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let page = api.get(who, &format!("/requests?{filter}limit=2&cursor={cursor}")).await;
                seen.extend(page.each("requests", "operation_id"));
                pages += 1;
                match page.body["next_cursor"].as_str() {
                    Some(next) => next.clone_into(&mut cursor),
                    None => break,
                }
            }
            assert_eq!((&seen, pages), (&admitted, 3), "{who} {filter}");
        }
    }
}

#[tokio::test]
async fn a_query_that_would_not_do_what_it_says_is_refused() {
    let world = World::new().await;
    let api = Api::of(&world);
    for query in ["limit=0", "limit=101", "limit=x", "status=merged", "subject=a%20b", "cursor=x", "staus=MERGED", "limit=1&limit=2"] {
        let answer = api.get(ALICE, &format!("/requests?{query}")).await;
        assert_eq!(answer.problem(), (400, "invalid-request".to_owned()), "{query}");
        assert_eq!(answer.body["errors"].as_array().map(Vec::len), Some(1), "{query}");
    }
    for query in ["limit=-1", "status=WAITING", "partition=a/b", "cursor=01", "subject=s"] {
        assert_eq!(api.get(ALICE, &format!("/batches?{query}")).await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn a_batch_shows_its_members_to_whom_they_concern() {
    let world = World::new().await;
    let api = Api::of(&world);
    let (first, second) = (api.grant(ALICE, "s1").await, api.grant(BOB, "s2").await);
    let batch = world.claimed("token").await;
    let path = format!("/batches/{batch}");
    let shown = api.get(OLGA, &path).await;
    let branch = format!("muster/default/{}", token("token").hex());
    assert_eq!((shown.status, shown.text("batch_id"), shown.text("status")), (200, batch.to_string(), "RUNNING".to_owned()));
    assert_eq!((shown.text("branch"), &shown.body["member_count"], &shown.body["merge_request"]), (branch, &json!(2), &json!(null)));
    assert_eq!(shown.each("members", "operation_id"), [first.clone(), second]);
    assert_eq!(shown.each("members", "status"), ["IN_BATCH"; 2]);
    let own = api.get(ALICE, &path).await;
    assert_eq!((own.each("members", "operation_id"), &own.body["member_count"]), (vec![first.clone()], &json!(2)));
    world.sql("UPDATE merge_batch SET mr_iid = 12, mr_url = 'https://gitlab.example.com/-/merge_requests/12'", ()).await;
    let link = json!({ "iid": "12", "url": "https://gitlab.example.com/-/merge_requests/12" });
    assert_eq!(api.get(ALICE, &path).await.body["merge_request"], link);
    let request = api.get(ALICE, &format!("/requests/{first}")).await;
    assert_eq!((request.text("batch_id"), &request.body["merge_request"]), (batch.to_string(), &link));
    for missing in ["/batches/0", "/batches/x", "/batches/+1", "/batches/18446744073709551616"] {
        assert_eq!(api.get(OLGA, missing).await.problem(), (404, "not-found".to_owned()), "{missing}");
    }
}

#[tokio::test]
async fn batches_are_listed_by_state_and_partition_page_by_page() {
    let world = World::new().await.with_partition("other").await;
    let api = Api::of(&world);
    for (number, partition) in ["default", "other", "default", "other", "default"].into_iter().enumerate() {
        world
            .sql(
                "INSERT INTO merge_batch (partition_key, status, claim_token, trigger_kind, requested_by, settled_at, settled_by, created_at) \
                 VALUES (?, 2, ?, 1, 'scheduled', CURRENT_TIMESTAMP(6), 'muster', CURRENT_TIMESTAMP(6) - INTERVAL ? MINUTE)",
                (partition, format!("token-{number:010}").into_bytes(), 60 - number),
            )
            .await;
    }
    let ids: Vec<u64> = world.rows("SELECT id FROM merge_batch ORDER BY id DESC", ()).await;
    let ids: Vec<String> = ids.into_iter().map(|id| BatchId(id).to_string()).collect();
    assert_eq!(api.get(ALICE, "/batches").await.each("batches", "batch_id"), ids);
    assert_eq!(api.get(ALICE, "/batches?status=RUNNING").await.each("batches", "batch_id"), [""; 0]);
    let first = api.get(ALICE, "/batches?partition=default&status=SUCCEEDED&limit=2").await;
    assert_eq!(first.each("batches", "batch_id"), [ids[0].as_str(), &ids[2]]);
    let second = api.get(ALICE, &format!("/batches?partition=default&limit=2&cursor={}", first.text("next_cursor"))).await;
    assert_eq!((second.each("batches", "batch_id"), &second.body["next_cursor"]), (vec![ids[4].clone()], &json!(null)));
    let rest = api.get(ALICE, &format!("/batches?status=SUCCEEDED&cursor={}", ids[1])).await;
    assert_eq!(rest.each("batches", "batch_id"), ids[2..]);
}

#[tokio::test]
async fn the_status_tells_what_waits_what_runs_and_what_is_late() {
    let world = World::new().await.with_partition("other").await;
    let api = Api::of(&world);
    let idle = api.get(ALICE, "/status").await;
    let nothing = |partition: &str, branch: &str| {
        json!({
            "partition": partition, "project": "acme/access", "target_branch": branch, "waiting": 0, "oldest_waiting_age_s": null,
            "active_batch": null, "paused": null, "closed_at": null,
        })
    };
    let no_effects = json!({ "undelivered": 0, "overdue": 0, "lag_s": 0, "given_up": 0 });
    assert_eq!(idle.body, json!({ "partitions": [nothing("default", "main"), nothing("other", "other")], "outbox": no_effects }));
    api.grant(ALICE, "s1").await;
    let batch = world.claimed("token").await;
    api.grant(ALICE, "s2").await;
    world.sql("UPDATE merge_batch SET created_at = created_at - INTERVAL 90 SECOND", ()).await;
    world.sql("UPDATE merge_batch_request SET created_at = created_at - INTERVAL 70 SECOND", ()).await;
    world.sql("UPDATE outbox SET due_at = due_at - INTERVAL 50 SECOND", ()).await;
    world.sql("UPDATE outbox SET given_up_at = CURRENT_TIMESTAMP(6) WHERE kind = 'open_merge_request'", ()).await;
    world.sql("UPDATE merge_partition SET pause_reason = 'freeze', pause_by = 'olga' WHERE partition_key = 'other'", ()).await;
    let busy = api.get(ALICE, "/status").await.body;
    let default = &busy["partitions"][0];
    assert_eq!((&default["waiting"], &default["active_batch"]["batch_id"]), (&json!(1), &json!(batch)));
    assert!((70..100).contains(&default["oldest_waiting_age_s"].as_u64().expect("an age")), "{default}");
    assert!((90..120).contains(&default["active_batch"]["age_s"].as_u64().expect("an age")), "{default}");
    assert_eq!((&default["active_batch"]["status"], &default["active_batch"]["step"]), (&json!("RUNNING"), &json!("claimed")));
    assert_eq!(busy["partitions"][1]["paused"], json!({ "reason": "freeze", "by": "olga", "until": null }));
    assert_eq!(busy["outbox"]["given_up"], 1);
    assert_eq!(busy["outbox"]["undelivered"], busy["outbox"]["overdue"]);
    assert!((50..80).contains(&busy["outbox"]["lag_s"].as_u64().expect("a lag")), "{busy}");
}
