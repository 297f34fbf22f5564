-- What each committed page decided of each of its keys. A page whose commit was repeated has a row for each time, and
-- page 0 is a record that a person accepted.
CREATE TABLE sighting (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job         BIGINT NOT NULL REFERENCES job (id),
    partition   TEXT   COLLATE "C" NOT NULL,
    run         BIGINT NOT NULL,
    page        BIGINT NOT NULL,
    -- By our clock; `decided_at` by the database's.
    asked_at    BIGINT NOT NULL,
    answered_at BIGINT NOT NULL,
    decided_at  BIGINT NOT NULL,
    -- For each key: eight bytes of its hash, the decision, and the version unless the bytes were known.
    keys        BYTEA  NOT NULL
);
-- It is searched through, and hashes do not shrink.
ALTER TABLE sighting ALTER COLUMN keys SET STORAGE EXTERNAL;
CREATE INDEX sighting_of_run ON sighting (job, run, id);

-- The steps of runs that were read to their end: versions from `from_version` up to, but not with, `to_version`; a
-- bound that is null does not bound.
CREATE TABLE covered (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job          BIGINT NOT NULL REFERENCES job (id),
    partition    TEXT   COLLATE "C" NOT NULL,
    run          BIGINT NOT NULL,
    from_version BIGINT,
    to_version   BIGINT,
    -- When the first request was sent, by the source's clock.
    read_at      BIGINT NOT NULL
);
CREATE INDEX covered_by_run ON covered (job, run, id);

CREATE INDEX event_of_key ON event (job, partition, key, position);
