-- Walks beside the live one that a person or a schedule asked for. A task lives until its window is read whole, over as
-- many runs as that takes.
CREATE TABLE task (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job         BIGINT NOT NULL REFERENCES job (id),
    -- What events and people call it: unique over restored backups.
    uid         TEXT COLLATE "C" NOT NULL UNIQUE,
    -- replay | reconcile
    kind        TEXT COLLATE "C" NOT NULL,
    -- What it reads and sends, as JSON.
    plan        TEXT COLLATE "C" NOT NULL,
    -- open | done | failed | cancelled
    state       TEXT COLLATE "C" NOT NULL DEFAULT 'open',
    reason      TEXT COLLATE "C",
    -- The version up to which its window is read.
    read_to     BIGINT,
    bookmark    TEXT COLLATE "C",
    -- How many of its runs failed there, one after another.
    failures    BIGINT NOT NULL DEFAULT 0,
    lease_owner TEXT COLLATE "C",
    lease_epoch BIGINT NOT NULL DEFAULT 0,
    lease_until BIGINT,
    created_at  BIGINT NOT NULL,
    ended_at    BIGINT
);
CREATE INDEX task_of_job ON task (job, id);
-- One of a kind at a time.
CREATE UNIQUE INDEX task_open ON task (job, kind) WHERE state = 'open';

-- The task that the run worked on; none for a live run.
ALTER TABLE run ADD COLUMN task BIGINT;
ALTER TABLE run ADD COLUMN to_version BIGINT;
CREATE INDEX run_of_task ON run (task) WHERE task IS NOT NULL;
CREATE INDEX run_live ON run (job, id) WHERE task IS NULL;

-- The replay that sent the event, found by key so that a replay that goes on sends nothing twice.
ALTER TABLE event ADD COLUMN replay BIGINT;
CREATE INDEX event_of_replay ON event (replay, key) WHERE replay IS NOT NULL;
