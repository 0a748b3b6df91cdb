//! What becomes of a batch's members when it ends, for each way of ending.

use muster_tests::*;
use serde_json::json;
use shared::ids::{BatchId, OperationId};
use shared::state::{BatchStatus, FailCause};
use shared::transactions::batch_row::SettleOutcome;
use shared::transactions::claim::ClaimOutcome;
use shared::transactions::succeed::{ALREADY_APPLIED, Succeed};
use shared::transactions::unblock::Unblock;

/// A grant, and a revoke of what was granted before, in one RUNNING batch; the target has ten seats.
struct Mixed {
    world: World,
    batch: BatchId,
    grant: OperationId,
    revoke: OperationId,
    granted: OperationId,
}

async fn mixed() -> Mixed {
    let world = World::new().await.with_target("db", "default", Some(10)).await;
    let granted = world.admitted(grant("leaver", "db")).await;
    let batch = world.claimed("round-0").await;
    assert_eq!(world.run(&succeed(batch, "settler-0")).await, SettleOutcome::Settled);
    let grant = world.admitted(grant("joiner", "db")).await;
    let revoke = world.admitted(revoke("leaver", "db")).await;
    let batch = world.claimed("round-1").await;
    Mixed { world, batch, grant, revoke, granted }
}

impl Mixed {
    /// Status, code and message of both operations, and whether they have ended: the grant first.
    async fn operations(&self) -> [String; 2] {
        let sql = "SELECT CONCAT_WS(' ', status, IFNULL(code, '-'), IFNULL(message, '-'), IF(settled_at IS NULL, 'open', 'ended')) \
                   FROM operation WHERE operation_id = ?";
        [self.world.scalar(sql, (&self.grant,)).await, self.world.scalar(sql, (&self.revoke,)).await]
    }

    /// Status and granting operation of both relationships.
    async fn bindings(&self) -> [(i64, Option<String>); 2] {
        let rows = self.world.rows("SELECT status, granted_by_operation_id FROM binding ORDER BY subject_id", ()).await;
        rows.try_into().expect("two relationships")
    }

    async fn used(&self) -> u64 {
        self.world.scalar("SELECT used FROM target", ()).await
    }

    /// Outcome and evidence of both memberships of the batch.
    async fn memberships(&self) -> [String; 2] {
        let sql = "SELECT CONCAT_WS(' ', IFNULL(outcome, '-'), IFNULL(evidence, '-')) FROM merge_batch_member WHERE batch_id = ? AND operation_id = ?";
        [self.world.scalar(sql, (self.batch.0, &self.grant)).await, self.world.scalar(sql, (self.batch.0, &self.revoke)).await]
    }

    /// What the batch wrote to the histories, in the order of subjects.
    async fn history(&self) -> Vec<String> {
        let sql =
            "SELECT CONCAT_WS(' ', subject_id, from_status, to_status, actor) FROM binding_history WHERE batch_id = ? ORDER BY subject_id";
        self.world.rows(sql, (self.batch.0,)).await
    }

    /// Events of both requests beyond their admission.
    async fn events(&self) -> Vec<String> {
        let sql = "SELECT CONCAT_WS(' ', JSON_UNQUOTE(JSON_EXTRACT(payload, '$.type')), JSON_UNQUOTE(JSON_EXTRACT(payload, '$.action')), \
                   JSON_UNQUOTE(JSON_EXTRACT(payload, '$.status'))) FROM outbox \
                   WHERE operation_id IN (?, ?) AND dedup_key NOT LIKE 'request.admitted:%' ORDER BY 1";
        self.world.rows(sql, (&self.grant, &self.revoke)).await
    }

    /// The waiting rows of the two, in the order of their ids: batch and attempts.
    async fn rows(&self) -> Vec<String> {
        let sql = "SELECT CONCAT_WS(' ', IFNULL(batch_id, '-'), content_attempts, infra_attempts) FROM merge_batch_request \
                   WHERE operation_id IN (?, ?) ORDER BY id";
        self.world.rows(sql, (&self.grant, &self.revoke)).await
    }

    async fn batch(&self) -> String {
        let sql = "SELECT CONCAT_WS(' ', status, IFNULL(active_slot, '-'), IFNULL(fail_code, '-'), IFNULL(code, '-'), IFNULL(merge_sha, '-'), \
                   IFNULL(settled_by, '-'), step, version) FROM merge_batch WHERE id = ?";
        self.world.scalar(sql, (self.batch.0,)).await
    }
}

#[tokio::test]
async fn a_merged_batch_makes_grants_active_and_closes_revokes_with_their_seats() {
    let mixed = mixed().await;
    assert_eq!(mixed.used().await, 2);
    assert_eq!(mixed.world.run(&succeed(mixed.batch, "settler-1")).await, SettleOutcome::Settled);
    assert_eq!(mixed.batch().await, format!("2 - - - {} settler-1 succeeded 2", "a".repeat(40)));
    assert_eq!(mixed.operations().await, ["3 - - ended", "3 - - ended"]);
    assert_eq!(mixed.bindings().await, [(2, Some(mixed.grant.to_string())), (6, Some(mixed.granted.to_string()))]);
    assert_eq!(mixed.used().await, 1);
    assert_eq!(mixed.memberships().await, ["1 -", "1 -"]);
    assert_eq!(mixed.history().await, ["joiner 1 2 settler-1", "leaver 3 6 settler-1"]);
    assert_eq!(mixed.events().await, ["request.merged grant MERGED", "request.merged revoke MERGED"]);
    // The row of a merged request stays with its batch.
    assert_eq!(mixed.rows().await, vec![format!("{} 0 0", mixed.batch); 2]);
    assert_eq!(
        mixed.world.effects_of(mixed.batch).await,
        ["batch.claimed 1", "batch.succeeded 2", "delete_branch 2", "open_merge_request 1"]
    );
    mixed.world.assert_invariants().await;
}

#[tokio::test]
async fn a_merged_batch_names_its_merge_request_as_evidence_and_its_code_to_each_member() {
    let mixed = mixed().await;
    let _ = mixed.world.run(&record_merge_request(mixed.batch, 7)).await;
    let unit = Succeed { merge_sha: None, code: Some(ALREADY_APPLIED), ..succeed(mixed.batch, "settler-1") };
    assert_eq!(mixed.world.run(&unit).await, SettleOutcome::Settled);
    assert_eq!(mixed.batch().await, "2 - - already_applied - settler-1 succeeded 3");
    let url = "http://127.0.0.1/acme/access/-/merge_requests/7";
    assert_eq!(mixed.memberships().await, [format!("1 {url}"), format!("1 {url}")]);
    assert_eq!(mixed.operations().await, [format!("3 already_applied {url} ended"), format!("3 already_applied {url} ended")]);
}

#[tokio::test]
async fn beginning_to_fail_keeps_the_slot_and_wishes_for_the_withdrawal() {
    let mixed = mixed().await;
    assert_eq!(mixed.world.run(&begin_fail(mixed.batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    assert_eq!(mixed.batch().await, "1 1 forge_down - - - failing 2");
    assert_eq!(mixed.operations().await, ["2 - - open", "2 - - open"]);
    assert_eq!(mixed.world.run(&claim("round-2")).await, ClaimOutcome::SlotOccupied { batch: mixed.batch });
    assert_eq!(mixed.world.effects_of(mixed.batch).await, ["batch.claimed 1", "open_merge_request 1", "withdraw_merge_request 2"]);
    let audit = "SELECT CONCAT_WS(' ', action, actor, reason, partition_key, batch_id) FROM audit_record WHERE batch_id = ?";
    let recorded = mixed.world.rows::<String>(audit, (mixed.batch.0,)).await;
    assert_eq!(recorded, [format!("begin_fail settler-1 the forge did not answer default {}", mixed.batch)]);
    mixed.world.assert_invariants().await;
}

#[tokio::test]
async fn the_wish_for_the_withdrawal_names_the_merge_request() {
    let mixed = mixed().await;
    let _ = mixed.world.run(&record_merge_request(mixed.batch, 7)).await;
    assert_eq!(mixed.world.run(&begin_fail(mixed.batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    let payload: String = mixed.world.scalar("SELECT CAST(payload AS CHAR) FROM outbox WHERE kind = 'withdraw_merge_request'", ()).await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&payload).expect("JSON"), json!({ "mr_iid": 7 }));
}

#[tokio::test]
async fn an_infrastructure_failure_puts_every_member_back_where_it_stood() {
    let mixed = mixed().await;
    let standing = "SELECT CONCAT_WS(' ', id, operation_id, created_at, rank_at) FROM merge_batch_request ORDER BY id";
    let before: Vec<String> = mixed.world.rows(standing, ()).await;
    assert_eq!(mixed.world.run(&begin_fail(mixed.batch, FailCause::Infrastructure)).await, SettleOutcome::Settled);
    assert_eq!(mixed.world.run(&fail(mixed.batch, "settler-2")).await, SettleOutcome::Settled);
    assert_eq!(mixed.world.rows::<String>(standing, ()).await, before);
    assert_eq!(mixed.batch().await, "3 - forge_down forge_down - settler-2 failed 3");
    assert_eq!(mixed.operations().await, vec!["1 forge_down the forge did not answer open"; 2].as_slice());
    assert_eq!(mixed.rows().await, ["- 0 1", "- 0 1"]);
    assert_eq!(mixed.bindings().await, [(1, None), (3, Some(mixed.granted.to_string()))]);
    assert_eq!((mixed.used().await, mixed.history().await.len(), mixed.events().await.len()), (2, 0, 0));
    assert_eq!(mixed.memberships().await, vec!["2 the forge did not answer"; 2].as_slice());
    let effects = ["batch.claimed 1", "batch.failed 3", "delete_branch 3", "open_merge_request 1", "withdraw_merge_request 2"];
    assert_eq!(mixed.world.effects_of(mixed.batch).await, effects);
    // The next round takes them again, in the same order.
    let outcome = mixed.world.run(&claim("round-2")).await;
    assert!(
        matches!(&outcome, ClaimOutcome::Claimed { members, .. } if *members == [mixed.grant.clone(), mixed.revoke.clone()]),
        "{outcome:?}"
    );
    mixed.world.assert_invariants().await;
}

#[tokio::test]
async fn a_persons_rejection_rejects_every_member_and_gives_the_grants_seat_back() {
    let mixed = mixed().await;
    assert_eq!(mixed.world.run(&begin_fail(mixed.batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    assert_eq!(mixed.world.run(&fail(mixed.batch, "settler-2")).await, SettleOutcome::Settled);
    assert_eq!(mixed.operations().await, vec!["4 closed_by_person somebody closed the merge request ended"; 2].as_slice());
    assert_eq!(mixed.bindings().await, [(4, None), (2, Some(mixed.granted.to_string()))]);
    assert_eq!(mixed.used().await, 1);
    assert_eq!(mixed.rows().await, Vec::<String>::new());
    assert_eq!(mixed.memberships().await, vec!["3 somebody closed the merge request"; 2].as_slice());
    assert_eq!(mixed.history().await, ["joiner 1 4 settler-2", "leaver 3 2 settler-2"]);
    assert_eq!(mixed.events().await, ["request.rejected grant REJECTED", "request.rejected revoke REJECTED"]);
    mixed.world.assert_invariants().await;
}

#[tokio::test]
async fn a_content_failure_of_a_batch_of_one_convicts_it_and_keeps_its_seat_and_row() {
    let world = World::new().await.with_target("db", "default", Some(10)).await;
    let culprit = world.admitted(grant("alice", "db")).await;
    let batch = world.claimed("round-1").await;
    assert_eq!(world.run(&begin_fail(batch, FailCause::Content)).await, SettleOutcome::Settled);
    assert_eq!(world.run(&fail(batch, "settler-2")).await, SettleOutcome::Settled);
    let operation: String = world.scalar("SELECT CONCAT_WS(' ', status, code, message, batch_id) FROM operation", ()).await;
    assert_eq!(operation, format!("5 pipeline_failed the pipeline of our commit failed {batch}"));
    let binding: String = world.scalar("SELECT CONCAT_WS(' ', status, operation_id) FROM binding", ()).await;
    assert_eq!(binding, format!("5 {culprit}"));
    assert_eq!(world.scalar::<u64>("SELECT used FROM target", ()).await, 1);
    assert_eq!(world.scalar::<Option<u64>>("SELECT batch_id FROM merge_batch_request", ()).await, Some(batch.0));
    assert_eq!(world.count("merge_batch_member WHERE outcome = 4 AND evidence = 'the pipeline of our commit failed'").await, 1);
    assert_eq!(world.count(&format!("outbox WHERE dedup_key LIKE 'request.failed:{culprit}:%'")).await, 1);
    world.assert_invariants().await;
}

#[tokio::test]
async fn a_blocked_batch_keeps_slot_and_members_until_it_is_unblocked_with_its_attempts_forgiven() {
    let mixed = mixed().await;
    mixed.world.sql("UPDATE merge_batch_request SET infra_attempts = 4", ()).await;
    assert_eq!(mixed.world.run(&block(mixed.batch)).await, SettleOutcome::Settled);
    assert_eq!(mixed.batch().await, "4 1 - infra_exhausted - - blocked 2");
    assert_eq!(mixed.operations().await, ["2 - - open", "2 - - open"]);
    assert_eq!(mixed.rows().await, vec![format!("{} 0 4", mixed.batch); 2]);
    mixed.world.assert_invariants().await;
    assert_eq!(mixed.world.run(&Unblock { batch: mixed.batch }).await, SettleOutcome::Settled);
    assert_eq!(mixed.batch().await, "1 1 - - - - unblocked 3");
    assert_eq!(mixed.rows().await, vec![format!("{} 0 0", mixed.batch); 2]);
    let effects = ["arm_merge 3", "batch.blocked 2", "batch.claimed 1", "disarm_merge 2", "open_merge_request 1", "open_merge_request 3"];
    assert_eq!(mixed.world.effects_of(mixed.batch).await, effects);
    mixed.world.assert_invariants().await;
}

#[tokio::test]
async fn a_blocked_batch_can_succeed_and_can_fail() {
    for ends in [BatchStatus::Succeeded, BatchStatus::Failed] {
        let mixed = mixed().await;
        assert_eq!(mixed.world.run(&block(mixed.batch)).await, SettleOutcome::Settled);
        if ends == BatchStatus::Succeeded {
            assert_eq!(mixed.world.run(&succeed(mixed.batch, "settler-2")).await, SettleOutcome::Settled);
        } else {
            assert_eq!(mixed.world.run(&begin_fail(mixed.batch, FailCause::Rejected)).await, SettleOutcome::Settled);
            assert_eq!(mixed.batch().await, "4 1 closed_by_person infra_exhausted - - failing 3");
            assert_eq!(mixed.world.run(&fail(mixed.batch, "settler-2")).await, SettleOutcome::Settled);
        }
        assert_eq!(mixed.world.scalar::<i64>("SELECT status FROM merge_batch WHERE id = ?", (mixed.batch.0,)).await, ends.code());
        mixed.world.assert_invariants().await;
    }
}

#[tokio::test]
async fn a_failing_batch_whose_merge_request_merged_after_all_succeeds() {
    let mixed = mixed().await;
    assert_eq!(mixed.world.run(&begin_fail(mixed.batch, FailCause::Rejected)).await, SettleOutcome::Settled);
    assert_eq!(mixed.world.run(&succeed(mixed.batch, "settler-2")).await, SettleOutcome::Settled);
    assert_eq!(mixed.operations().await, ["3 - - ended", "3 - - ended"]);
    mixed.world.assert_invariants().await;
}
