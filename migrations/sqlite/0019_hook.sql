-- The webhooks that came in, once for each key. A hook is a row of `job`; its events are in the outbox.
CREATE TABLE hook_key (
    job           INTEGER NOT NULL REFERENCES job (id),
    key           TEXT    NOT NULL,
    event_id      TEXT    NOT NULL,
    -- The body that came first; one that comes again may be another.
    body_hash     BLOB    NOT NULL,
    times         INTEGER NOT NULL,
    -- How often it came with another body.
    differing     INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL,
    PRIMARY KEY (job, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX hook_key_by_age ON hook_key (job, last_seen_at);

-- What hooks counted since they were made.
CREATE TABLE hook_total (
    job         INTEGER PRIMARY KEY REFERENCES job (id),
    accepted    INTEGER NOT NULL,
    duplicates  INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    last_at     INTEGER NOT NULL
) STRICT;
