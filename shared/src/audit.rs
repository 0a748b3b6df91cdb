//! The invariants as read-only SQL: each statement returns the ids of what breaks it, as one text column.
//!
//! The same text serves the tests after each step and the audit in production. I3 (admission is never blocked)
//! and I10 (a refusal changes nothing) speak of behaviour, not of rows: tests alone can show them.

/// One sentence that must be true of the database at every commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invariant {
    /// `I1` … as the design numbers them, with a part where one sentence needs several statements.
    pub id: &'static str,
    pub sentence: &'static str,
    /// Returns one row per breach: `VARCHAR` naming the row that breaks it.
    pub sql: &'static str,
}

/// Events of state flips are looked for as long as delivered outbox rows are kept for certain.
macro_rules! kept_events {
    () => {
        "CURRENT_TIMESTAMP(6) - INTERVAL 6 DAY"
    };
}

pub const INVARIANTS: &[Invariant] = &[
    Invariant {
        id: "I1",
        sentence: "a partition has at most one batch that is RUNNING or BLOCKED",
        sql: "/* audit.i1 */ SELECT CAST(partition_key AS CHAR) FROM merge_batch WHERE status IN (1, 4) \
              GROUP BY partition_key HAVING COUNT(*) > 1",
    },
    Invariant {
        id: "I2.open",
        sentence: "no request has more than one open membership",
        sql: "/* audit.i2_open */ SELECT CAST(operation_id AS CHAR) FROM merge_batch_member WHERE outcome IS NULL \
              GROUP BY operation_id HAVING COUNT(*) > 1",
    },
    Invariant {
        id: "I2.merged",
        sentence: "no request was merged by two batches",
        sql: "/* audit.i2_merged */ SELECT CAST(operation_id AS CHAR) FROM merge_batch_member WHERE outcome = 1 \
              GROUP BY operation_id HAVING COUNT(*) > 1",
    },
    Invariant {
        id: "I2.row",
        sentence: "a claimed row belongs to a batch that counts it among its members",
        sql: "/* audit.i2_row */ SELECT CAST(r.operation_id AS CHAR) FROM merge_batch_request r \
              LEFT JOIN merge_batch_member m ON m.batch_id = r.batch_id AND m.operation_id = r.operation_id \
              WHERE r.batch_id IS NOT NULL AND m.batch_id IS NULL",
    },
    Invariant {
        id: "I2.partition",
        sentence: "a batch, its members and their waiting rows belong to one partition",
        sql: "/* audit.i2_partition */ SELECT CAST(m.operation_id AS CHAR) FROM merge_batch_member m \
              JOIN merge_batch b ON b.id = m.batch_id JOIN operation o ON o.operation_id = m.operation_id \
              LEFT JOIN merge_batch_request r ON r.operation_id = m.operation_id \
              WHERE m.outcome IS NULL AND (o.partition_key <> b.partition_key OR r.partition_key <> b.partition_key)",
    },
    Invariant {
        id: "I4.once",
        sentence: "a request was admitted under one idempotency key",
        sql: "/* audit.i4_once */ SELECT CAST(operation_id AS CHAR) FROM idempotency_record \
              GROUP BY operation_id HAVING COUNT(*) > 1",
    },
    Invariant {
        id: "I4.whole",
        sentence: "an idempotency key leads to a request, admitted for the same principal",
        sql: "/* audit.i4_whole */ SELECT CONCAT(i.principal, ' ', i.request_key) FROM idempotency_record i \
              LEFT JOIN operation o ON o.operation_id = i.operation_id \
              WHERE o.operation_id IS NULL OR o.requested_by <> i.principal",
    },
    Invariant {
        id: "I5.held",
        sentence: "a request that has not ended holds its relationship",
        sql: "/* audit.i5_held */ SELECT CAST(o.operation_id AS CHAR) FROM operation o \
              LEFT JOIN binding b ON b.subject_id = o.subject_id AND b.target_key = o.target_key \
              WHERE o.status IN (1, 2, 5) AND (b.operation_id IS NULL OR b.operation_id <> o.operation_id)",
    },
    Invariant {
        id: "I5.state",
        sentence: "a relationship is in the state that its last request brought it to",
        sql: "/* audit.i5_state */ SELECT CONCAT(b.subject_id, ' ', b.target_key) FROM binding b \
              LEFT JOIN operation o ON o.operation_id = b.operation_id \
              WHERE o.operation_id IS NULL OR o.subject_id <> b.subject_id OR o.target_key <> b.target_key \
                 OR b.status <> CASE WHEN o.action = 1 \
                      THEN CASE o.status WHEN 1 THEN 1 WHEN 2 THEN 1 WHEN 3 THEN 2 WHEN 4 THEN 4 WHEN 5 THEN 5 ELSE 6 END \
                      ELSE CASE o.status WHEN 1 THEN 3 WHEN 2 THEN 3 WHEN 3 THEN 6 WHEN 5 THEN 5 ELSE 2 END END",
    },
    Invariant {
        id: "I5.granted",
        sentence: "what is active was granted by a merged request of the same relationship",
        sql: "/* audit.i5_granted */ SELECT CONCAT(b.subject_id, ' ', b.target_key) FROM binding b \
              LEFT JOIN operation o ON o.operation_id = b.granted_by_operation_id \
              WHERE b.status IN (2, 3) AND (o.operation_id IS NULL OR o.action <> 1 OR o.status <> 3 \
                 OR o.subject_id <> b.subject_id OR o.target_key <> b.target_key)",
    },
    Invariant {
        id: "I5.history",
        sentence: "the newest entry of a relationship's history is its state",
        sql: "/* audit.i5_history */ SELECT CONCAT(b.subject_id, ' ', b.target_key) FROM binding b \
              WHERE b.status <> COALESCE((SELECT h.to_status FROM binding_history h \
                 WHERE h.subject_id = b.subject_id AND h.target_key = b.target_key ORDER BY h.id DESC LIMIT 1), 0)",
    },
    Invariant {
        id: "I6",
        sentence: "a settled batch has left no member open",
        sql: "/* audit.i6 */ SELECT CONCAT(m.batch_id, ' ', m.operation_id) FROM merge_batch b \
              JOIN merge_batch_member m ON m.batch_id = b.id WHERE b.status IN (2, 3) AND m.outcome IS NULL",
    },
    Invariant {
        id: "I8.merged",
        sentence: "a merged request was a member of a batch that landed",
        sql: "/* audit.i8_merged */ SELECT CAST(o.operation_id AS CHAR) FROM operation o WHERE o.status = 3 \
              AND NOT EXISTS (SELECT 1 FROM merge_batch_member m JOIN merge_batch b ON b.id = m.batch_id \
                 WHERE m.operation_id = o.operation_id AND ((b.status = 2 AND m.outcome = 1) OR b.late_merged_at IS NOT NULL)) \
              AND NOT EXISTS (SELECT 1 FROM audit_record a WHERE a.operation_id = o.operation_id AND a.action = 'recover')",
    },
    Invariant {
        id: "I8.landed",
        sentence: "a member that a batch merged is merged",
        sql: "/* audit.i8_landed */ SELECT CAST(m.operation_id AS CHAR) FROM merge_batch_member m \
              JOIN merge_batch b ON b.id = m.batch_id LEFT JOIN operation o ON o.operation_id = m.operation_id \
              WHERE m.outcome = 1 AND (b.status <> 2 OR o.status IS NULL OR o.status <> 3)",
    },
    Invariant {
        id: "I9.batch",
        sentence: "a batch that settled has told so, once",
        sql: concat!(
            "/* audit.i9_batch */ SELECT CAST(b.id AS CHAR) FROM merge_batch b \
             WHERE b.status IN (2, 3) AND b.settled_at > ",
            kept_events!(),
            " AND (SELECT COUNT(*) FROM outbox e WHERE e.kind = 'publish' AND e.dedup_key LIKE \
                 CONCAT(IF(b.status = 2, 'batch.succeeded:', 'batch.failed:'), LOWER(HEX(b.claim_token)), ':%')) <> 1"
        ),
    },
    Invariant {
        id: "I9.request",
        sentence: "a request that was admitted has told so, once",
        sql: concat!(
            "/* audit.i9_request */ SELECT CAST(o.operation_id AS CHAR) FROM operation o WHERE o.created_at > ",
            kept_events!(),
            " AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.dedup_key = CONCAT('request.admitted:', o.operation_id, ':1'))"
        ),
    },
    Invariant {
        id: "I11.waiting",
        sentence: "a request waits if and only if it has an unclaimed row",
        sql: "/* audit.i11_waiting */ SELECT CAST(o.operation_id AS CHAR) FROM operation o \
              LEFT JOIN merge_batch_request r ON r.operation_id = o.operation_id \
              WHERE o.status = 1 AND (r.id IS NULL OR r.batch_id IS NOT NULL) \
              UNION ALL SELECT CAST(r.operation_id AS CHAR) FROM merge_batch_request r \
              LEFT JOIN operation o ON o.operation_id = r.operation_id \
              WHERE r.batch_id IS NULL AND (o.status IS NULL OR o.status <> 1)",
    },
    Invariant {
        id: "I11.in_batch",
        sentence: "a request is in a batch if and only if that batch is active and holds its row and its open membership",
        sql: "/* audit.i11_in_batch */ SELECT CAST(o.operation_id AS CHAR) FROM operation o \
              LEFT JOIN merge_batch b ON b.id = o.batch_id \
              LEFT JOIN merge_batch_request r ON r.operation_id = o.operation_id \
              LEFT JOIN merge_batch_member m ON m.batch_id = o.batch_id AND m.operation_id = o.operation_id \
              WHERE o.status = 2 AND (b.id IS NULL OR b.status NOT IN (1, 4) OR r.batch_id IS NULL OR r.batch_id <> o.batch_id \
                 OR m.batch_id IS NULL OR m.outcome IS NOT NULL) \
              UNION ALL SELECT CAST(m.operation_id AS CHAR) FROM merge_batch_member m \
              LEFT JOIN operation o ON o.operation_id = m.operation_id \
              WHERE m.outcome IS NULL AND (o.status IS NULL OR o.status <> 2 OR o.batch_id <> m.batch_id)",
    },
    Invariant {
        id: "I11.ended",
        sentence: "a request that was rejected, withdrawn or closed has no row left",
        sql: "/* audit.i11_ended */ SELECT CAST(r.operation_id AS CHAR) FROM merge_batch_request r \
              JOIN operation o ON o.operation_id = r.operation_id WHERE o.status IN (4, 6, 7)",
    },
    Invariant {
        id: "I11.members",
        sentence: "an active batch has an open member",
        sql: "/* audit.i11_members */ SELECT CAST(b.id AS CHAR) FROM merge_batch b WHERE b.status IN (1, 4) \
              AND NOT EXISTS (SELECT 1 FROM merge_batch_member m WHERE m.batch_id = b.id AND m.outcome IS NULL)",
    },
    Invariant {
        id: "seats",
        sentence: "a counted target has as many seats used as relationships hold",
        sql: "/* audit.seats */ SELECT CONCAT(t.target_key, ' used ', t.used) FROM target t WHERE t.capacity IS NOT NULL \
              AND t.used <> (SELECT COUNT(*) FROM binding b WHERE b.target_key = t.target_key AND b.status IN (1, 2, 3, 5))",
    },
    Invariant {
        id: "content",
        sentence: "a request that has not ended has its content",
        sql: "/* audit.content */ SELECT CAST(o.operation_id AS CHAR) FROM operation o \
              LEFT JOIN operation_content c ON c.operation_id = o.operation_id \
              WHERE o.status IN (1, 2, 5) AND c.operation_id IS NULL",
    },
    Invariant {
        id: "orphans",
        sentence: "every row leads to the partition, target, batch or request that it names",
        sql: "/* audit.orphans */ SELECT CONCAT('operation ', o.operation_id) FROM operation o \
                 LEFT JOIN merge_partition p ON p.partition_key = o.partition_key \
                 LEFT JOIN target t ON t.target_key = o.target_key WHERE p.partition_key IS NULL OR t.target_key IS NULL \
              UNION ALL SELECT CONCAT('target ', t.target_key) FROM target t \
                 LEFT JOIN merge_partition p ON p.partition_key = t.partition_key WHERE p.partition_key IS NULL \
              UNION ALL SELECT CONCAT('merge_batch ', b.id) FROM merge_batch b \
                 LEFT JOIN merge_partition p ON p.partition_key = b.partition_key WHERE p.partition_key IS NULL \
              UNION ALL SELECT CONCAT('merge_batch_member ', m.batch_id, ' ', m.operation_id) FROM merge_batch_member m \
                 LEFT JOIN merge_batch b ON b.id = m.batch_id LEFT JOIN operation o ON o.operation_id = m.operation_id \
                 WHERE b.id IS NULL OR o.operation_id IS NULL \
              UNION ALL SELECT CONCAT('request_path ', p.operation_id) FROM request_path p \
                 LEFT JOIN operation o ON o.operation_id = p.operation_id WHERE o.operation_id IS NULL \
              UNION ALL SELECT CONCAT('outbox ', e.dedup_key) FROM outbox e \
                 LEFT JOIN merge_batch b ON b.id = e.batch_id LEFT JOIN operation o ON o.operation_id = e.operation_id \
                 WHERE (e.batch_id IS NOT NULL AND b.id IS NULL) OR (e.operation_id IS NOT NULL AND o.operation_id IS NULL)",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_is_named_once_and_only_reads() {
        let mut ids: Vec<_> = INVARIANTS.iter().map(|one| one.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), INVARIANTS.len());
        for one in INVARIANTS {
            assert!(one.sql.starts_with("/* audit.") && one.sql.contains("*/ SELECT "), "{}", one.id);
            for word in ["INSERT", "UPDATE ", "DELETE", "FOR UPDATE", "LOCK IN"] {
                assert!(!one.sql.contains(word), "{} holds {word}", one.id);
            }
        }
    }
}
