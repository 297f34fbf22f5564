-- What sweeps know beside their tasks.
CREATE TABLE sweep (
    task        INTEGER PRIMARY KEY REFERENCES task (id),
    job         INTEGER NOT NULL REFERENCES job (id),
    -- The configuration that it began under.
    fingerprint TEXT    NOT NULL,
    -- How long the source may take to show a change, in microseconds.
    reach       INTEGER NOT NULL,
    -- reading | waiting | asking | marking
    phase       TEXT    NOT NULL DEFAULT 'reading',
    -- When everything was read, and the last run that had begun by then.
    read_at     INTEGER,
    read_by_run INTEGER,
    -- When a person accepted what it asked for.
    accepted_at INTEGER,
    -- Keys that are gone, of so many; known once they were counted.
    gone        INTEGER,
    of_keys     INTEGER,
    -- Keys that were marked as deleted.
    deleted     INTEGER NOT NULL DEFAULT 0,
    -- Changes that polling had passed, and how late the latest of them was.
    missed      INTEGER NOT NULL DEFAULT 0,
    longest     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX sweep_of_job ON sweep (job, task);

-- A page of the run was told to be what it had been, so that it names no keys.
ALTER TABLE run ADD COLUMN unmodified INTEGER NOT NULL DEFAULT FALSE;

CREATE INDEX sighting_by_time ON sighting (job, decided_at);

-- How far below the watermark changes lay that runs found: how many by bucket, found by live runs or passed by them.
CREATE TABLE lateness (
    job     INTEGER NOT NULL REFERENCES job (id),
    bucket  INTEGER NOT NULL,
    live    INTEGER NOT NULL,
    missed  INTEGER NOT NULL,
    -- In microseconds.
    longest INTEGER NOT NULL,
    PRIMARY KEY (job, bucket)
) STRICT, WITHOUT ROWID;
