-- The health of destinations; one without a row has never been sent anything.
CREATE TABLE destination (
    name         TEXT    PRIMARY KEY,
    -- well | recovering | failing | parked
    condition    TEXT    NOT NULL DEFAULT 'well',
    since        INTEGER NOT NULL DEFAULT 0,
    reason       TEXT,
    failures     INTEGER NOT NULL DEFAULT 0,
    refusals     INTEGER NOT NULL DEFAULT 0,
    probes       INTEGER NOT NULL DEFAULT 0,
    room         INTEGER NOT NULL DEFAULT 0,
    -- Nothing is sent before. Who sends a probe puts it off, so that nobody sends another meanwhile.
    not_before   INTEGER,
    delivered_at INTEGER,
    -- When a person had it paused.
    paused_at    INTEGER
) STRICT, WITHOUT ROWID;

-- Attempts that count towards the end of an event.
ALTER TABLE event RENAME COLUMN refusals TO spent;

-- When the key's event was last claimed; probes take the one that was not for longest.
ALTER TABLE outbox_head ADD COLUMN tried_at INTEGER;
