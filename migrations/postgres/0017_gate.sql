-- Numbers for whoever is let through, by the gate or by a lock: of one key each is greater than all before, and none is
-- given twice.
CREATE SEQUENCE fence;

-- What is known of the keys that side effects were asked for by.
CREATE TABLE gate_key (
    scope          TEXT COLLATE "C" NOT NULL,
    key            TEXT COLLATE "C" NOT NULL,
    -- in_progress | done | failed; `new` inside the transaction that makes the row, and never after
    state          TEXT COLLATE "C" NOT NULL,
    fence          BIGINT  NOT NULL,
    lease_until    BIGINT  NOT NULL,
    -- Taken over from a holder that was never heard of again.
    takeover       BOOLEAN NOT NULL DEFAULT FALSE,
    owner          TEXT,
    fingerprint    TEXT,
    correlation_id TEXT,
    metadata       TEXT,
    result         TEXT,
    -- There was a result, and it was too large to keep.
    result_dropped BOOLEAN NOT NULL DEFAULT FALSE,
    reason         TEXT,
    first_seen_at  BIGINT  NOT NULL,
    last_seen_at   BIGINT  NOT NULL,
    -- When it was last acquired, renewed, completed or failed.
    changed_at     BIGINT  NOT NULL,
    -- How often it was asked for, how often somebody was let through, and how often for one who was not heard of again.
    asked          BIGINT  NOT NULL DEFAULT 0,
    started        BIGINT  NOT NULL DEFAULT 0,
    taken_over     BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 90);
CREATE INDEX gate_key_by_age ON gate_key (scope, changed_at);

-- What keys counted that are known no more.
CREATE TABLE gate_scope (
    scope      TEXT COLLATE "C" PRIMARY KEY,
    keys       BIGINT NOT NULL,
    asked      BIGINT NOT NULL,
    started    BIGINT NOT NULL,
    taken_over BIGINT NOT NULL
);
