-- What sweeps know beside their tasks.
CREATE TABLE sweep (
    task        BIGINT PRIMARY KEY REFERENCES task (id),
    job         BIGINT NOT NULL REFERENCES job (id),
    -- The configuration that it began under.
    fingerprint TEXT COLLATE "C" NOT NULL,
    -- How long the source may take to show a change, in microseconds.
    reach       BIGINT NOT NULL,
    -- reading | waiting | asking | marking
    phase       TEXT COLLATE "C" NOT NULL DEFAULT 'reading',
    -- When everything was read, and the last run that had begun by then.
    read_at     BIGINT,
    read_by_run BIGINT,
    -- When a person accepted what it asked for.
    accepted_at BIGINT,
    -- Keys that are gone, of so many; known once they were counted.
    gone        BIGINT,
    of_keys     BIGINT,
    -- Keys that were marked as deleted.
    deleted     BIGINT NOT NULL DEFAULT 0,
    -- Changes that polling had passed, and how late the latest of them was.
    missed      BIGINT NOT NULL DEFAULT 0,
    longest     BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX sweep_of_job ON sweep (job, task);

-- A page of the run was told to be what it had been, so that it names no keys.
ALTER TABLE run ADD COLUMN unmodified BOOLEAN NOT NULL DEFAULT FALSE;

CREATE INDEX sighting_by_time ON sighting (job, decided_at);

-- How far below the watermark changes lay that runs found: how many by bucket, found by live runs or passed by them.
CREATE TABLE lateness (
    job     BIGINT NOT NULL REFERENCES job (id),
    bucket  BIGINT NOT NULL,
    live    BIGINT NOT NULL,
    missed  BIGINT NOT NULL,
    -- In microseconds.
    longest BIGINT NOT NULL,
    PRIMARY KEY (job, bucket)
);
