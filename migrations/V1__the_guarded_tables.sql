-- The tables of Muster. Every invariant that a constraint can hold is held here, not in code.
--
-- Identity columns are ascii_bin with a CHECK on their form: two different ids must never be equal.
-- Times are DATETIME(6) in UTC, written by the database's clock; a session pins time_zone = '+00:00'.
-- Every mutable row carries `version`, raised by each guarded write.
-- There are no foreign keys: a foreign-key check takes a shared lock on its parent, and the parents
-- here are the gate and the hot row. The audit finds orphans instead.

CREATE TABLE merge_partition (
  partition_key     VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  project           VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'path of the project on the forge',
  target_branch     VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  project_id        BIGINT UNSIGNED NULL COMMENT 'the forge''s number, from preflight',
  path_template     VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'holds {subject_id} and {target_key}',
  allowed_prefixes  JSON         NOT NULL COMMENT 'array of path prefixes a request may write below',
  max_requests      INT UNSIGNED NOT NULL DEFAULT 100,
  max_bytes         BIGINT UNSIGNED NOT NULL DEFAULT 8388608,
  min_requests      INT UNSIGNED NOT NULL DEFAULT 1,
  max_wait_s        INT UNSIGNED NOT NULL DEFAULT 300,
  not_started_s     INT UNSIGNED NOT NULL DEFAULT 900,
  no_progress_s     INT UNSIGNED NOT NULL DEFAULT 3600,
  total_s           INT UNSIGNED NOT NULL DEFAULT 21600,
  content_attempts  INT UNSIGNED NOT NULL DEFAULT 8,
  infra_attempts    INT UNSIGNED NOT NULL DEFAULT 5,
  pause_reason      VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  pause_by          VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NULL,
  pause_until       DATETIME(6) NULL COMMENT 'NULL with a reason: until resumed',
  closed_at         DATETIME(6) NULL,
  created_at        DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at        DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  version           BIGINT UNSIGNED NOT NULL DEFAULT 1,
  PRIMARY KEY (partition_key),
  UNIQUE KEY uk_project_branch (project, target_branch),
  CONSTRAINT ck_partition_key CHECK (partition_key REGEXP '^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\\z'),
  CONSTRAINT ck_partition_template CHECK (path_template LIKE '%{subject\_id}%' AND path_template LIKE '%{target\_key}%'),
  CONSTRAINT ck_partition_prefixes CHECK (JSON_VALID(allowed_prefixes) AND JSON_LENGTH(allowed_prefixes) >= 1),
  CONSTRAINT ck_partition_sizes CHECK (max_requests BETWEEN 1 AND 1000 AND min_requests BETWEEN 1 AND max_requests AND max_bytes >= 262144),
  CONSTRAINT ck_partition_limits CHECK (not_started_s >= 1 AND no_progress_s >= 1 AND total_s >= 1 AND infra_attempts >= 1),
  CONSTRAINT ck_partition_attempts CHECK (content_attempts >= CEILING(LOG2(max_requests)) + 1),
  CONSTRAINT ck_partition_pause CHECK ((pause_reason IS NULL) = (pause_by IS NULL) AND (pause_until IS NULL OR pause_reason IS NOT NULL))
) ENGINE = InnoDB;

-- The slot: active_slot is 1 while a batch is RUNNING or BLOCKED and NULL after, so the unique key
-- holds at most one active batch per partition. The partition comes first in the key, so that
-- neighbouring partitions do not lock one another's gaps.
CREATE TABLE merge_batch (
  id             BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  partition_key  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status         TINYINT NOT NULL DEFAULT 1 COMMENT '1=RUNNING 2=SUCCEEDED 3=FAILED 4=BLOCKED',
  active_slot    TINYINT GENERATED ALWAYS AS (CASE WHEN status IN (1, 4) THEN 1 END) STORED,
  claim_token    BINARY(16) NOT NULL COMMENT 'chosen before BEGIN; names the branch',
  trigger_kind   TINYINT NOT NULL COMMENT '1=SCHEDULED 2=MANUAL 3=FOLLOW_UP',
  requested_by   VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  mr_iid         BIGINT UNSIGNED NULL,
  mr_url         VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  start_sha      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  head_sha       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  merge_sha      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  fail_code      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'set by begin_fail while the batch is still active',
  fail_cause     TINYINT NULL COMMENT '1=CONTENT 2=INFRASTRUCTURE 3=REJECTED',
  fail_at        DATETIME(6) NULL,
  code           VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  message        VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  step           VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'claimed' COMMENT 'last step or pipeline status seen',
  created_at     DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at     DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  progress_at    DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) COMMENT 'moves only on a new step or pipeline status',
  runs_since     DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) COMMENT 'claimed or unblocked: the limits count from here',
  settled_at     DATETIME(6) NULL,
  settled_by     VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NULL,
  late_merged_at DATETIME(6) NULL,
  suspect_of     BIGINT UNSIGNED NULL,
  version        BIGINT UNSIGNED NOT NULL DEFAULT 1,
  PRIMARY KEY (id),
  UNIQUE KEY uk_active_slot (partition_key, active_slot),
  UNIQUE KEY uk_claim_token (claim_token),
  UNIQUE KEY uk_partition_mr (partition_key, mr_iid),
  KEY idx_status_updated (status, updated_at),
  KEY idx_partition_created (partition_key, created_at),
  CONSTRAINT ck_batch_status CHECK (status IN (1, 2, 3, 4)),
  CONSTRAINT ck_batch_settled CHECK ((status IN (2, 3)) = (settled_at IS NOT NULL) AND (settled_at IS NULL) = (settled_by IS NULL)),
  CONSTRAINT ck_batch_fail CHECK ((fail_code IS NULL) = (fail_cause IS NULL) AND (fail_code IS NULL) = (fail_at IS NULL) AND fail_cause IN (1, 2, 3)),
  CONSTRAINT ck_batch_late CHECK (late_merged_at IS NULL OR status = 3),
  CONSTRAINT ck_batch_trigger CHECK (trigger_kind IN (1, 2, 3))
) ENGINE = InnoDB;

-- The waiting set: rows whose batch_id is NULL.
CREATE TABLE merge_batch_request (
  id               BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  operation_id     VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  partition_key    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  batch_id         BIGINT UNSIGNED NULL COMMENT 'NULL means still waiting',
  created_at       DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  rank_at          DATETIME(6) NOT NULL COMMENT 'created_at - priority x 5 min',
  bytes            INT UNSIGNED NOT NULL,
  expires_at       DATETIME(6) NULL COMMENT 'grants only',
  content_attempts INT UNSIGNED NOT NULL DEFAULT 0,
  infra_attempts   INT UNSIGNED NOT NULL DEFAULT 0,
  suspect_of       BIGINT UNSIGNED NULL,
  peer_limit       INT UNSIGNED NULL,
  version          BIGINT UNSIGNED NOT NULL DEFAULT 1,
  PRIMARY KEY (id),
  UNIQUE KEY uk_operation_id (operation_id),
  KEY idx_waiting_rank (partition_key, batch_id, rank_at, id),
  KEY idx_suspects_rank (partition_key, batch_id, suspect_of, rank_at, id),
  KEY idx_batch (batch_id, id),
  CONSTRAINT ck_request_operation CHECK (CHAR_LENGTH(operation_id) = 36),
  CONSTRAINT ck_request_suspect CHECK ((suspect_of IS NULL) = (peer_limit IS NULL) AND (peer_limit IS NULL OR peer_limit >= 1))
) ENGINE = InnoDB;

CREATE TABLE request_path (
  operation_id  VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  path          VARBINARY(1024) NOT NULL,
  partition_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  deletes       TINYINT NOT NULL COMMENT '1: the request removes this file',
  PRIMARY KEY (operation_id, path),
  KEY idx_partition_path (partition_key, path),
  CONSTRAINT ck_path_length CHECK (LENGTH(path) >= 1),
  CONSTRAINT ck_path_deletes CHECK (deletes IN (0, 1))
) ENGINE = InnoDB;

CREATE TABLE operation_content (
  operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  content      MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'JSON array of files: path, content or delete, base',
  PRIMARY KEY (operation_id)
) ENGINE = InnoDB;

-- Append-only: one row per claim of a request; outcome is written once.
CREATE TABLE merge_batch_member (
  batch_id     BIGINT UNSIGNED NOT NULL,
  operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  position     INT UNSIGNED NOT NULL,
  outcome      TINYINT NULL COMMENT '1=MERGED 2=REQUEUED 3=REJECTED 4=FAILED 5=WITHDRAWN 6=EXPELLED',
  evidence     VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  PRIMARY KEY (batch_id, operation_id),
  KEY idx_operation (operation_id, batch_id),
  CONSTRAINT ck_member_outcome CHECK (outcome IS NULL OR outcome IN (1, 2, 3, 4, 5, 6))
) ENGINE = InnoDB;

CREATE TABLE operation (
  operation_id          VARCHAR(36)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  partition_key         VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subject_id            VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  target_key            VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  action                TINYINT NOT NULL COMMENT '1=GRANT 2=REVOKE',
  status                TINYINT NOT NULL COMMENT '1=WAITING 2=IN_BATCH 3=MERGED 4=REJECTED 5=FAILED 6=WITHDRAWN 7=CLOSED',
  requested_by          VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  approval_ref          VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  priority              TINYINT NOT NULL DEFAULT 0,
  expires_at            DATETIME(6) NULL,
  batch_id              BIGINT UNSIGNED NULL COMMENT 'the batch it is in, or was last in',
  code                  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  message               VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  withdraw_requested_at DATETIME(6) NULL,
  created_at            DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at            DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  settled_at            DATETIME(6) NULL,
  version               BIGINT UNSIGNED NOT NULL DEFAULT 1,
  PRIMARY KEY (operation_id),
  KEY idx_status_updated (status, updated_at),
  KEY idx_subject_target (subject_id, target_key, operation_id),
  KEY idx_target (target_key, operation_id),
  KEY idx_status_operation (status, operation_id),
  KEY idx_requester (requested_by, operation_id),
  CONSTRAINT ck_operation_id CHECK (operation_id REGEXP '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\\z'),
  CONSTRAINT ck_operation_subject CHECK (subject_id REGEXP '^[A-Za-z0-9._@:+/-]{1,128}\\z' AND subject_id NOT IN ('.', '..')),
  CONSTRAINT ck_operation_target CHECK (target_key REGEXP '^[A-Za-z0-9._@:+/-]{1,128}\\z' AND target_key NOT IN ('.', '..')),
  CONSTRAINT ck_operation_status CHECK (status IN (1, 2, 3, 4, 5, 6, 7)),
  CONSTRAINT ck_operation_action CHECK (action IN (1, 2)),
  CONSTRAINT ck_operation_priority CHECK (priority BETWEEN 0 AND 9),
  CONSTRAINT ck_operation_settled CHECK ((status IN (3, 4, 6, 7)) = (settled_at IS NOT NULL)),
  CONSTRAINT ck_operation_in_batch CHECK (status NOT IN (2) OR batch_id IS NOT NULL)
) ENGINE = InnoDB;

-- One row per relationship: the primary key is the relationship.
CREATE TABLE binding (
  subject_id              VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  target_key              VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status                  TINYINT NOT NULL COMMENT '1=APPLYING 2=ACTIVE 3=REVOKING 4=REJECTED 5=FAILED 6=CLOSED',
  operation_id            VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'the last application',
  granted_by_operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NULL,
  expires_at              DATETIME(6) NULL,
  expiry_rejections       INT UNSIGNED NOT NULL DEFAULT 0,
  created_at              DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at              DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  version                 BIGINT UNSIGNED NOT NULL DEFAULT 1,
  PRIMARY KEY (subject_id, target_key),
  KEY idx_status_expires (status, expires_at),
  KEY idx_target_status (target_key, status),
  CONSTRAINT ck_binding_subject CHECK (CHAR_LENGTH(subject_id) BETWEEN 1 AND 128),
  CONSTRAINT ck_binding_target CHECK (CHAR_LENGTH(target_key) BETWEEN 1 AND 128),
  CONSTRAINT ck_binding_operation CHECK (CHAR_LENGTH(operation_id) = 36),
  CONSTRAINT ck_binding_status CHECK (status IN (1, 2, 3, 4, 5, 6)),
  CONSTRAINT ck_binding_granted CHECK (status NOT IN (2, 3) OR granted_by_operation_id IS NOT NULL)
) ENGINE = InnoDB;

CREATE TABLE binding_history (
  id           BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  subject_id   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  target_key   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  operation_id VARCHAR(36)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  from_status  TINYINT NULL,
  to_status    TINYINT NOT NULL,
  batch_id     BIGINT UNSIGNED NULL,
  actor        VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at           DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  PRIMARY KEY (id),
  KEY idx_relationship (subject_id, target_key, id),
  KEY idx_operation (operation_id)
) ENGINE = InnoDB;

CREATE TABLE audit_record (
  dedup_key     VARCHAR(191) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'a duplicate means: already recorded',
  action        VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  actor         VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason        VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  partition_key VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NULL,
  operation_id  VARCHAR(36)  CHARACTER SET ascii COLLATE ascii_bin NULL,
  batch_id      BIGINT UNSIGNED NULL,
  before_state  JSON NULL,
  after_state   JSON NULL,
  at            DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  PRIMARY KEY (dedup_key),
  KEY idx_operation (operation_id),
  KEY idx_batch (batch_id),
  KEY idx_at (at),
  CONSTRAINT ck_audit_key CHECK (CHAR_LENGTH(dedup_key) >= 1)
) ENGINE = InnoDB;

CREATE TABLE idempotency_record (
  principal    VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  request_key  VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  payload_hash BINARY(32) NOT NULL COMMENT 'SHA-256 of the canonical command',
  operation_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at   DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  expires_at   DATETIME(6) NOT NULL,
  PRIMARY KEY (principal, request_key),
  KEY idx_expires (expires_at),
  CONSTRAINT ck_idempotency_principal CHECK (principal REGEXP '^[!-~]{1,255}\\z'),
  CONSTRAINT ck_idempotency_key CHECK (request_key REGEXP '^[!-~]([ -~]{0,253}[!-~])?\\z')
) ENGINE = InnoDB;

CREATE TABLE outbox (
  dedup_key     VARCHAR(191) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'kind:(claim token or operation id):version',
  kind          VARCHAR(32)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  partition_key VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  batch_id      BIGINT UNSIGNED NULL,
  operation_id  VARCHAR(36)  CHARACTER SET ascii COLLATE ascii_bin NULL,
  payload       JSON NOT NULL,
  created_at    DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  due_at        DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  lease_token   BINARY(16) NULL,
  leased_until  DATETIME(6) NULL,
  attempts      INT UNSIGNED NOT NULL DEFAULT 0,
  delivered_at  DATETIME(6) NULL,
  given_up_at   DATETIME(6) NULL,
  last_error    VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  version       BIGINT UNSIGNED NOT NULL DEFAULT 1,
  PRIMARY KEY (dedup_key),
  KEY idx_due (delivered_at, given_up_at, due_at),
  KEY idx_batch (batch_id, due_at),
  CONSTRAINT ck_outbox_kind CHECK (kind IN ('open_merge_request', 'arm_merge', 'disarm_merge', 'withdraw_merge_request', 'delete_branch', 'start_round', 'publish')),
  CONSTRAINT ck_outbox_lease CHECK ((lease_token IS NULL) = (leased_until IS NULL)),
  CONSTRAINT ck_outbox_end CHECK (delivered_at IS NULL OR given_up_at IS NULL)
) ENGINE = InnoDB;

-- The hot row of admission. There is no CHECK (used <= capacity): a late merge retakes its seat above it.
CREATE TABLE target (
  target_key    VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  partition_key VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  capacity      BIGINT UNSIGNED NULL COMMENT 'NULL: not counted',
  used          BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'kept only while capacity is set',
  closed_at     DATETIME(6) NULL,
  created_at    DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at    DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  version       BIGINT UNSIGNED NOT NULL DEFAULT 1,
  PRIMARY KEY (target_key),
  KEY idx_partition (partition_key),
  CONSTRAINT ck_target_key CHECK (target_key REGEXP '^[A-Za-z0-9._@:+/-]{1,128}\\z' AND target_key NOT IN ('.', '..'))
) ENGINE = InnoDB;
