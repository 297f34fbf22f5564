-- Numbers for whoever is let through, by the gate or by a lock: each greater than all before, and none given twice.
CREATE TABLE fence (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
) STRICT;
INSERT INTO fence (id, last) VALUES (1, 0);

-- What is known of the keys that side effects were asked for by.
CREATE TABLE gate_key (
    scope          TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    -- in_progress | done | failed; `new` inside the transaction that makes the row, and never after
    state          TEXT    NOT NULL,
    fence          INTEGER NOT NULL,
    lease_until    INTEGER NOT NULL,
    -- Taken over from a holder that was never heard of again.
    takeover       INTEGER NOT NULL DEFAULT FALSE,
    owner          TEXT,
    fingerprint    TEXT,
    correlation_id TEXT,
    metadata       TEXT,
    result         TEXT,
    -- There was a result, and it was too large to keep.
    result_dropped INTEGER NOT NULL DEFAULT FALSE,
    reason         TEXT,
    first_seen_at  INTEGER NOT NULL,
    last_seen_at   INTEGER NOT NULL,
    -- When it was last acquired, renewed, completed or failed.
    changed_at     INTEGER NOT NULL,
    -- How often it was asked for, how often somebody was let through, and how often for one who was not heard of again.
    asked          INTEGER NOT NULL DEFAULT 0,
    started        INTEGER NOT NULL DEFAULT 0,
    taken_over     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, key)
) STRICT;
CREATE INDEX gate_key_by_age ON gate_key (scope, changed_at);

-- What keys counted that are known no more.
CREATE TABLE gate_scope (
    scope      TEXT    PRIMARY KEY,
    keys       INTEGER NOT NULL,
    asked      INTEGER NOT NULL,
    started    INTEGER NOT NULL,
    taken_over INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
