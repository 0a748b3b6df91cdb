-- Database users, one for each function, with the least grants that its units need; and one for migrations.
-- For a schema called `muster`. Run it as an administrator after the first migration, and again after an upgrade that
-- changed it: all of it may be repeated. MySQL prints the generated passwords once; they go into the secret (docs/DEPLOY.md).
--
-- What nobody but muster_migrate may do: change the schema. What no function may do at all: change or delete what is
-- recorded in audit_record and binding_history, or delete an operation, a binding, a batch, a member, a partition or a
-- target. UPDATE on a table is also what SELECT … FOR UPDATE asks for.

CREATE USER IF NOT EXISTS 'muster_migrate'@'%' IDENTIFIED BY RANDOM PASSWORD REQUIRE SSL;
CREATE USER IF NOT EXISTS 'muster_admit'@'%' IDENTIFIED BY RANDOM PASSWORD REQUIRE SSL;
CREATE USER IF NOT EXISTS 'muster_claim_round'@'%' IDENTIFIED BY RANDOM PASSWORD REQUIRE SSL;
CREATE USER IF NOT EXISTS 'muster_settle'@'%' IDENTIFIED BY RANDOM PASSWORD REQUIRE SSL;
CREATE USER IF NOT EXISTS 'muster_sweep'@'%' IDENTIFIED BY RANDOM PASSWORD REQUIRE SSL;
CREATE USER IF NOT EXISTS 'muster_ops'@'%' IDENTIFIED BY RANDOM PASSWORD REQUIRE SSL;

GRANT ALL ON muster.* TO 'muster_migrate'@'%';

-- admit: admits, shows, withdraws.
GRANT SELECT ON muster.* TO 'muster_admit'@'%';
GRANT INSERT ON muster.idempotency_record TO 'muster_admit'@'%';
GRANT INSERT ON muster.operation_content TO 'muster_admit'@'%';
GRANT INSERT ON muster.request_path TO 'muster_admit'@'%';
GRANT INSERT ON muster.binding_history TO 'muster_admit'@'%';
GRANT INSERT ON muster.audit_record TO 'muster_admit'@'%';
GRANT INSERT ON muster.outbox TO 'muster_admit'@'%';
GRANT INSERT, UPDATE ON muster.operation TO 'muster_admit'@'%';
GRANT INSERT, UPDATE ON muster.binding TO 'muster_admit'@'%';
GRANT INSERT, UPDATE ON muster.target TO 'muster_admit'@'%';
GRANT INSERT, UPDATE, DELETE ON muster.merge_batch_request TO 'muster_admit'@'%';

-- claim-round, settle, sweep, ops: perform effects and settle batches.
GRANT SELECT ON muster.* TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT INSERT ON muster.audit_record TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT INSERT ON muster.binding_history TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT INSERT, UPDATE ON muster.outbox TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT UPDATE ON muster.merge_partition TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT UPDATE ON muster.merge_batch TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT UPDATE ON muster.merge_batch_member TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT UPDATE, DELETE ON muster.merge_batch_request TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT UPDATE ON muster.operation TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT UPDATE ON muster.binding TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT UPDATE ON muster.target TO 'muster_claim_round'@'%', 'muster_settle'@'%', 'muster_sweep'@'%', 'muster_ops'@'%';

-- claim-round alone makes batches.
GRANT INSERT ON muster.merge_batch TO 'muster_claim_round'@'%';
GRANT INSERT ON muster.merge_batch_member TO 'muster_claim_round'@'%';

-- sweep admits the revokes of expired accesses.
GRANT INSERT ON muster.idempotency_record TO 'muster_sweep'@'%';
GRANT INSERT ON muster.operation_content TO 'muster_sweep'@'%';
GRANT INSERT ON muster.request_path TO 'muster_sweep'@'%';
GRANT INSERT ON muster.operation TO 'muster_sweep'@'%';
GRANT INSERT ON muster.binding TO 'muster_sweep'@'%';
GRANT INSERT ON muster.target TO 'muster_sweep'@'%';
GRANT INSERT ON muster.merge_batch_request TO 'muster_sweep'@'%';

-- ops sets up partitions and targets.
GRANT INSERT ON muster.merge_partition TO 'muster_ops'@'%';
GRANT INSERT ON muster.target TO 'muster_ops'@'%';

-- sweep and ops purge what nobody needs any more. UPDATE where the rows are locked before they are deleted.
GRANT UPDATE, DELETE ON muster.idempotency_record TO 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT UPDATE, DELETE ON muster.operation_content TO 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT UPDATE, DELETE ON muster.request_path TO 'muster_sweep'@'%', 'muster_ops'@'%';
GRANT DELETE ON muster.outbox TO 'muster_sweep'@'%', 'muster_ops'@'%';
