-- Instants are microseconds since 1970 in UTC; versions are instants or plain integers; hashes are 16 bytes.
-- `partition` is '' for a job that has one partition.

CREATE TABLE job (
    id          INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL UNIQUE,
    -- What event ids are made from: outlives renaming.
    uid         TEXT    NOT NULL UNIQUE,
    last_fire   INTEGER,
    lease_owner TEXT,
    lease_epoch INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER
) STRICT;

CREATE TABLE progress (
    job              INTEGER NOT NULL REFERENCES job (id),
    partition        TEXT    NOT NULL,
    watermark        INTEGER,
    complete_through INTEGER,
    baseline_at      INTEGER,
    baseline_open    INTEGER NOT NULL,
    PRIMARY KEY (job, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    job          INTEGER NOT NULL REFERENCES job (id),
    kind         TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    reason       TEXT,
    from_version INTEGER,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    requests     INTEGER NOT NULL DEFAULT 0,
    -- The number of the last page that was committed.
    pages        INTEGER NOT NULL DEFAULT 0,
    records      INTEGER NOT NULL DEFAULT 0,
    created      INTEGER NOT NULL DEFAULT 0,
    updated      INTEGER NOT NULL DEFAULT 0,
    deleted      INTEGER NOT NULL DEFAULT 0,
    restored     INTEGER NOT NULL DEFAULT 0,
    unchanged    INTEGER NOT NULL DEFAULT 0,
    stale        INTEGER NOT NULL DEFAULT 0,
    quarantined  INTEGER NOT NULL DEFAULT 0,
    events       INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX run_of_job ON run (job, id);
CREATE INDEX run_open ON run (job) WHERE status = 'running';

-- The latest state of each key. `hash` and the columns beside it are null in a placeholder, which no
-- committed transaction leaves behind.
CREATE TABLE record (
    job           INTEGER NOT NULL REFERENCES job (id),
    partition     TEXT    NOT NULL,
    key           TEXT    NOT NULL,
    version       INTEGER,
    hash          BLOB,
    fingerprint   BLOB,
    deleted       TEXT,
    provisional   INTEGER NOT NULL DEFAULT 0,
    versionless   INTEGER NOT NULL DEFAULT 0,
    answered_at   INTEGER,
    -- The sequence of the key's last event.
    sequence      INTEGER NOT NULL DEFAULT 0,
    first_seen_at INTEGER NOT NULL,
    -- When the row was last written.
    changed_at    INTEGER NOT NULL,
    PRIMARY KEY (job, partition, key)
) STRICT, WITHOUT ROWID;

-- Records that could not be read, once for each text.
CREATE TABLE quarantine (
    job           INTEGER NOT NULL REFERENCES job (id),
    partition     TEXT    NOT NULL,
    raw_hash      BLOB    NOT NULL,
    raw           BLOB    NOT NULL,
    reason        TEXT    NOT NULL,
    run           INTEGER NOT NULL,
    -- When the last page that held it was asked for and had been answered.
    asked_at      INTEGER NOT NULL,
    answered_at   INTEGER NOT NULL,
    times         INTEGER NOT NULL DEFAULT 1,
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL,
    PRIMARY KEY (job, partition, raw_hash)
) STRICT;

-- The outbox: every event ever made, until it is purged.
CREATE TABLE event (
    position    INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id    TEXT    NOT NULL,
    destination TEXT    NOT NULL,
    job         INTEGER NOT NULL REFERENCES job (id),
    partition   TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    sequence    INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    body        TEXT    NOT NULL,
    -- pending | delivered | dead
    state       TEXT    NOT NULL DEFAULT 'pending',
    -- How often the receiver refused it, and how often it was tried.
    refusals    INTEGER NOT NULL DEFAULT 0,
    tries       INTEGER NOT NULL DEFAULT 0,
    -- The receiver may have acted on it although it is not known to be delivered.
    ambiguous   INTEGER NOT NULL DEFAULT 0,
    created_at  INTEGER NOT NULL,
    settled_at  INTEGER
) STRICT;
CREATE UNIQUE INDEX event_by_id ON event (event_id);
CREATE INDEX event_waiting ON event (destination, job, partition, key, sequence) WHERE state = 'pending';
CREATE INDEX event_of_job ON event (job, state);

-- One row for each key that has unsettled events: the only row of that key which can be claimed.
CREATE TABLE outbox_head (
    destination TEXT    NOT NULL,
    job         INTEGER NOT NULL,
    partition   TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    -- The key's earliest unsettled event.
    position    INTEGER NOT NULL REFERENCES event (position),
    -- From when it may be claimed: the next attempt, or the end of the lease where it is leased.
    due_at      INTEGER NOT NULL,
    leased      INTEGER NOT NULL DEFAULT 0,
    fence       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (destination, job, partition, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_due ON outbox_head (destination, due_at, position);
CREATE UNIQUE INDEX outbox_position ON outbox_head (position);

CREATE TABLE attempt (
    id        INTEGER PRIMARY KEY,
    position  INTEGER NOT NULL REFERENCES event (position),
    fence     INTEGER NOT NULL,
    -- delivered | again | refused | dead
    outcome   TEXT    NOT NULL,
    ambiguous INTEGER NOT NULL,
    status    INTEGER,
    error     TEXT,
    answer    TEXT    NOT NULL,
    sent_at   INTEGER NOT NULL,
    took      INTEGER NOT NULL
) STRICT;
CREATE INDEX attempt_of_event ON attempt (position);

-- Accounts that may not ask for a while.
CREATE TABLE account_hold (
    account    TEXT    PRIMARY KEY,
    held_until INTEGER NOT NULL,
    reason     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
