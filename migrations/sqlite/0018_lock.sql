-- What is known of locks. A lock that was let go long ago is forgotten; its fence is not given again.
CREATE TABLE lock (
    name        TEXT    PRIMARY KEY,
    fence       INTEGER NOT NULL,
    -- FALSE only after it was let go.
    held        INTEGER NOT NULL,
    owner       TEXT,
    -- Taken over from a holder that never let it go.
    takeover    INTEGER NOT NULL DEFAULT FALSE,
    acquired_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX lock_by_age ON lock (lease_until);
