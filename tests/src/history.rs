//! A database with a history of a given length, made set by set: seconds for 200,000 settled requests.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

const PER_BATCH: u32 = 100;
const TARGETS: u32 = 50;

/// How many requests have been merged, and how many are still on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    pub settled: u32,
    pub waiting: u32,
    /// Members of a RUNNING batch of the partition `default`; none: it has no batch.
    pub in_batch: u32,
}

/// What a statement may be asked about: it is there.
#[derive(Debug, Clone)]
pub struct Known {
    /// Of the youngest request.
    pub operation: String,
    pub subject: String,
    pub target: String,
    pub batch: u32,
}

/// Fills the empty tables of the session's database.
///
/// # Panics
/// When a row is refused.
pub async fn fill(session: &mut Conn, history: History) -> Known {
    let History { settled, waiting, in_batch } = history;
    let all = settled + waiting + in_batch;
    let first_in_batch = settled + waiting + 1;
    let ended = settled.div_ceil(PER_BATCH);
    // Of the batch that runs, if one does.
    let batch = if in_batch > 0 { ended + 1 } else { ended };
    // Numbers, and what a request of that number is called and has become.
    let numbers = format!(
        "SET SESSION cte_max_recursion_depth = {all};\
         CREATE TEMPORARY TABLE n (i INT UNSIGNED PRIMARY KEY, o CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, s VARCHAR(16), t VARCHAR(16), \
             p VARCHAR(16), b INT UNSIGNED, status TINYINT, at DATETIME(6));\
         INSERT INTO n WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {all}) \
             SELECT i, CONCAT(LPAD(LOWER(HEX(i)), 8, '0'), '-0000-7000-8000-', LPAD(LOWER(HEX(i)), 12, '0')), CONCAT('subject-', i), \
                    CONCAT('target-', i % {TARGETS}), IF(i % 10 = 0 AND i <= {settled}, 'other', 'default'), \
                    CASE WHEN i <= {settled} THEN 1 + (i - 1) DIV {PER_BATCH} WHEN i < {first_in_batch} THEN NULL ELSE {batch} END, \
                    CASE WHEN i <= {settled} THEN 3 WHEN i < {first_in_batch} THEN 1 ELSE 2 END, \
                    CURRENT_TIMESTAMP(6) - INTERVAL 60 DAY + INTERVAL i SECOND FROM c"
    );
    let rows = [
        "INSERT INTO merge_partition (partition_key, project, target_branch, path_template, allowed_prefixes) VALUES \
             ('default', 'acme/access', 'main', 'a/{target_key}/{subject_id}.json', '[\"a/\"]'), \
             ('other', 'acme/access', 'other', 'a/{target_key}/{subject_id}.json', '[\"a/\"]')"
            .to_owned(),
        format!("INSERT INTO target (target_key, partition_key) SELECT CONCAT('target-', i - 1), 'default' FROM n WHERE i <= {TARGETS}"),
        format!(
            "INSERT INTO merge_batch (id, partition_key, status, claim_token, trigger_kind, requested_by, mr_iid, settled_at, settled_by, created_at) \
             SELECT i, IF(i % 10 = 0 AND i <= {ended}, 'other', 'default'), IF(i > {ended}, 1, 2), UNHEX(LPAD(HEX(i), 32, '0')), 1, 'muster:schedule', i, \
                    IF(i > {ended}, NULL, at), IF(i > {ended}, NULL, 'sweep'), at FROM n WHERE i <= {batch}"
        ),
        "INSERT INTO operation (operation_id, partition_key, subject_id, target_key, action, status, requested_by, batch_id, created_at, settled_at) \
             SELECT o, p, s, t, 1, status, CONCAT('requester-', i % 100), b, at, IF(status = 3, at, NULL) FROM n"
            .to_owned(),
        "INSERT INTO merge_batch_request (operation_id, partition_key, batch_id, created_at, rank_at, bytes) SELECT o, p, b, at, at, 100 FROM n".to_owned(),
        "INSERT INTO binding (subject_id, target_key, status, operation_id, granted_by_operation_id) \
             SELECT s, t, IF(status = 3, 2, 1), o, IF(status = 3, o, NULL) FROM n"
            .to_owned(),
        "INSERT INTO request_path (operation_id, path, partition_key, deletes) SELECT o, CONCAT('a/', t, '/', s, '.json'), p, 0 FROM n".to_owned(),
        "INSERT INTO operation_content (operation_id, content) SELECT o, '[]' FROM n".to_owned(),
        "INSERT INTO merge_batch_member (batch_id, operation_id, position, outcome) \
             SELECT b, o, i % 100, IF(status = 3, 1, NULL) FROM n WHERE b IS NOT NULL"
            .to_owned(),
        "INSERT INTO binding_history (subject_id, target_key, operation_id, to_status, batch_id, actor) SELECT s, t, o, 2, b, 'sweep' FROM n".to_owned(),
        "INSERT INTO audit_record (dedup_key, action, actor, operation_id, at) SELECT CONCAT('admit:', o), 'admit', 'requester', o, at FROM n".to_owned(),
        "INSERT INTO idempotency_record (principal, request_key, payload_hash, operation_id, expires_at) \
             SELECT CONCAT('requester-', i % 100), o, UNHEX(SHA2(o, 256)), o, at + INTERVAL 7 DAY FROM n"
            .to_owned(),
        // Each is delivered but those of the batch that runs.
        format!(
            "INSERT INTO outbox (dedup_key, kind, partition_key, batch_id, operation_id, payload, due_at, delivered_at) \
             SELECT CONCAT('publish:', o, ':3'), 'publish', p, b, o, '{{}}', at, IF(i < {first_in_batch}, at, NULL) FROM n"
        ),
        "DROP TEMPORARY TABLE n".to_owned(),
    ];
    session.query_drop(numbers).await.expect("the numbers can be made");
    for sql in rows {
        session.query_drop(&sql).await.unwrap_or_else(|why| panic!("{sql}: {why}"));
    }
    let known: Option<(String, String, String)> = session
        .query_first("SELECT operation_id, subject_id, target_key FROM operation ORDER BY operation_id DESC LIMIT 1")
        .await
        .expect("a look");
    let (operation, subject, target) = known.expect("a history of at least one request");
    Known { operation, subject, target, batch }
}
