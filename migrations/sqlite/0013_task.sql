-- Walks beside the live one that a person or a schedule asked for. A task lives until its window is read whole, over as
-- many runs as that takes.
CREATE TABLE task (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    job         INTEGER NOT NULL REFERENCES job (id),
    -- What events and people call it: unique over restored backups.
    uid         TEXT    NOT NULL UNIQUE,
    -- replay | reconcile
    kind        TEXT    NOT NULL,
    -- What it reads and sends, as JSON.
    plan        TEXT    NOT NULL,
    -- open | done | failed | cancelled
    state       TEXT    NOT NULL DEFAULT 'open',
    reason      TEXT,
    -- The version up to which its window is read.
    read_to     INTEGER,
    bookmark    TEXT,
    -- How many of its runs failed there, one after another.
    failures    INTEGER NOT NULL DEFAULT 0,
    lease_owner TEXT,
    lease_epoch INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER,
    created_at  INTEGER NOT NULL,
    ended_at    INTEGER
) STRICT;
CREATE INDEX task_of_job ON task (job, id);
-- One of a kind at a time.
CREATE UNIQUE INDEX task_open ON task (job, kind) WHERE state = 'open';

-- The task that the run worked on; none for a live run.
ALTER TABLE run ADD COLUMN task INTEGER;
ALTER TABLE run ADD COLUMN to_version INTEGER;
CREATE INDEX run_of_task ON run (task) WHERE task IS NOT NULL;
CREATE INDEX run_live ON run (job, id) WHERE task IS NULL;

-- The replay that sent the event, found by key so that a replay that goes on sends nothing twice.
ALTER TABLE event ADD COLUMN replay INTEGER;
CREATE INDEX event_of_replay ON event (replay, key) WHERE replay IS NOT NULL;
