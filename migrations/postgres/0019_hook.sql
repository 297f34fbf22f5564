-- The webhooks that came in, once for each key. A hook is a row of `job`; its events are in the outbox.
CREATE TABLE hook_key (
    job           BIGINT NOT NULL REFERENCES job (id),
    key           TEXT COLLATE "C" NOT NULL,
    event_id      TEXT COLLATE "C" NOT NULL,
    -- The body that came first; one that comes again may be another.
    body_hash     BYTEA    NOT NULL,
    times         BIGINT NOT NULL,
    -- How often it came with another body.
    differing     BIGINT NOT NULL,
    first_seen_at BIGINT NOT NULL,
    last_seen_at  BIGINT NOT NULL,
    PRIMARY KEY (job, key)
);
CREATE INDEX hook_key_by_age ON hook_key (job, last_seen_at);

-- What hooks counted since they were made.
CREATE TABLE hook_total (
    job         BIGINT PRIMARY KEY REFERENCES job (id),
    accepted    BIGINT NOT NULL,
    duplicates  BIGINT NOT NULL,
    quarantined BIGINT NOT NULL,
    last_at     BIGINT NOT NULL
);
