-- Instants are microseconds since 1970 in UTC; versions are instants or plain integers; hashes are 16 bytes.
-- `partition` is '' for a job that has one partition.

CREATE TABLE job (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        TEXT COLLATE "C" NOT NULL UNIQUE,
    -- What event ids are made from: outlives renaming.
    uid         TEXT COLLATE "C" NOT NULL UNIQUE,
    last_fire   BIGINT,
    lease_owner TEXT COLLATE "C",
    lease_epoch BIGINT NOT NULL DEFAULT 0,
    lease_until BIGINT
);

CREATE TABLE progress (
    job              BIGINT NOT NULL REFERENCES job (id),
    partition        TEXT COLLATE "C" NOT NULL,
    watermark        BIGINT,
    complete_through BIGINT,
    baseline_at      BIGINT,
    baseline_open    BOOLEAN NOT NULL,
    PRIMARY KEY (job, partition)
);

CREATE TABLE run (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job          BIGINT NOT NULL REFERENCES job (id),
    kind         TEXT COLLATE "C" NOT NULL,
    status       TEXT COLLATE "C" NOT NULL,
    reason       TEXT COLLATE "C",
    from_version BIGINT,
    started_at   BIGINT NOT NULL,
    ended_at     BIGINT,
    requests     BIGINT NOT NULL DEFAULT 0,
    -- The number of the last page that was committed.
    pages        BIGINT NOT NULL DEFAULT 0,
    records      BIGINT NOT NULL DEFAULT 0,
    created      BIGINT NOT NULL DEFAULT 0,
    updated      BIGINT NOT NULL DEFAULT 0,
    deleted      BIGINT NOT NULL DEFAULT 0,
    restored     BIGINT NOT NULL DEFAULT 0,
    unchanged    BIGINT NOT NULL DEFAULT 0,
    stale        BIGINT NOT NULL DEFAULT 0,
    quarantined  BIGINT NOT NULL DEFAULT 0,
    events       BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX run_of_job ON run (job, id);
CREATE INDEX run_open ON run (job) WHERE status = 'running';

-- The latest state of each key. `hash` and the columns beside it are null in a placeholder, which no
-- committed transaction leaves behind.
CREATE TABLE record (
    job           BIGINT NOT NULL REFERENCES job (id),
    partition     TEXT COLLATE "C" NOT NULL,
    key           TEXT COLLATE "C" NOT NULL,
    version       BIGINT,
    hash          BYTEA,
    fingerprint   BYTEA,
    deleted       TEXT COLLATE "C",
    provisional   BOOLEAN NOT NULL DEFAULT FALSE,
    versionless   BOOLEAN NOT NULL DEFAULT FALSE,
    answered_at   BIGINT,
    -- The sequence of the key's last event.
    sequence      BIGINT NOT NULL DEFAULT 0,
    first_seen_at BIGINT NOT NULL,
    -- When the row was last written.
    changed_at    BIGINT NOT NULL,
    PRIMARY KEY (job, partition, key)
) WITH (fillfactor = 90);

-- Records that could not be read, once for each text.
CREATE TABLE quarantine (
    job           BIGINT NOT NULL REFERENCES job (id),
    partition     TEXT COLLATE "C" NOT NULL,
    raw_hash      BYTEA NOT NULL,
    raw           BYTEA NOT NULL,
    reason        TEXT COLLATE "C" NOT NULL,
    run           BIGINT NOT NULL,
    -- When the last page that held it was asked for and had been answered.
    asked_at      BIGINT NOT NULL,
    answered_at   BIGINT NOT NULL,
    times         BIGINT NOT NULL DEFAULT 1,
    first_seen_at BIGINT NOT NULL,
    last_seen_at  BIGINT NOT NULL,
    PRIMARY KEY (job, partition, raw_hash)
);

-- The outbox: every event ever made, until it is purged.
CREATE TABLE event (
    position    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id    TEXT COLLATE "C" NOT NULL,
    destination TEXT COLLATE "C" NOT NULL,
    job         BIGINT NOT NULL REFERENCES job (id),
    partition   TEXT COLLATE "C" NOT NULL,
    key         TEXT COLLATE "C" NOT NULL,
    sequence    BIGINT NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    -- pending | delivered | dead
    state       TEXT COLLATE "C" NOT NULL DEFAULT 'pending',
    -- How often the receiver refused it, and how often it was tried.
    refusals    BIGINT NOT NULL DEFAULT 0,
    tries       BIGINT NOT NULL DEFAULT 0,
    -- The receiver may have acted on it although it is not known to be delivered.
    ambiguous   BOOLEAN NOT NULL DEFAULT FALSE,
    created_at  BIGINT NOT NULL,
    settled_at  BIGINT
);
CREATE UNIQUE INDEX event_by_id ON event (event_id);
CREATE INDEX event_waiting ON event (destination, job, partition, key, sequence) WHERE state = 'pending';
CREATE INDEX event_of_job ON event (job, state);

-- One row for each key that has unsettled events: the only row of that key which can be claimed.
CREATE TABLE outbox_head (
    destination TEXT COLLATE "C" NOT NULL,
    job         BIGINT NOT NULL,
    partition   TEXT COLLATE "C" NOT NULL,
    key         TEXT COLLATE "C" NOT NULL,
    -- The key's earliest unsettled event.
    position    BIGINT NOT NULL REFERENCES event (position),
    -- From when it may be claimed: the next attempt, or the end of the lease where it is leased.
    due_at      BIGINT NOT NULL,
    leased      BOOLEAN NOT NULL DEFAULT FALSE,
    fence       BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (destination, job, partition, key)
);
CREATE INDEX outbox_due ON outbox_head (destination, due_at, position);
CREATE UNIQUE INDEX outbox_position ON outbox_head (position);

CREATE TABLE attempt (
    id        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position  BIGINT NOT NULL REFERENCES event (position),
    fence     BIGINT NOT NULL,
    -- delivered | again | refused | dead
    outcome   TEXT COLLATE "C" NOT NULL,
    ambiguous BOOLEAN NOT NULL,
    status    BIGINT,
    error     TEXT COLLATE "C",
    answer    TEXT COLLATE "C" NOT NULL,
    sent_at   BIGINT NOT NULL,
    took      BIGINT NOT NULL
);
CREATE INDEX attempt_of_event ON attempt (position);

-- Accounts that may not ask for a while.
CREATE TABLE account_hold (
    account    TEXT COLLATE "C" PRIMARY KEY,
    held_until BIGINT NOT NULL,
    reason     TEXT COLLATE "C" NOT NULL
);
