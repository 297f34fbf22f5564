-- What each committed page decided of each of its keys. A page whose commit was repeated has a row for each time, and
-- page 0 is a record that a person accepted.
CREATE TABLE sighting (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    job         INTEGER NOT NULL REFERENCES job (id),
    partition   TEXT    NOT NULL,
    run         INTEGER NOT NULL,
    page        INTEGER NOT NULL,
    -- By our clock; `decided_at` by the database's.
    asked_at    INTEGER NOT NULL,
    answered_at INTEGER NOT NULL,
    decided_at  INTEGER NOT NULL,
    -- For each key: eight bytes of its hash, the decision, and the version unless the bytes were known.
    keys        BLOB    NOT NULL
) STRICT;
CREATE INDEX sighting_of_run ON sighting (job, run, id);

-- The steps of runs that were read to their end: versions from `from_version` up to, but not with, `to_version`; a
-- bound that is null does not bound.
CREATE TABLE covered (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    job          INTEGER NOT NULL REFERENCES job (id),
    partition    TEXT    NOT NULL,
    run          INTEGER NOT NULL,
    from_version INTEGER,
    to_version   INTEGER,
    -- When the first request was sent, by the source's clock.
    read_at      INTEGER NOT NULL
) STRICT;
CREATE INDEX covered_by_run ON covered (job, run, id);

CREATE INDEX event_of_key ON event (job, partition, key, position);
