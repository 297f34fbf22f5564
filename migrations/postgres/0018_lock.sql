-- What is known of locks. A lock that was let go long ago is forgotten; its fence is not given again.
CREATE TABLE lock (
    name        TEXT COLLATE "C" PRIMARY KEY,
    fence       BIGINT NOT NULL,
    -- FALSE only after it was let go.
    held        BOOLEAN NOT NULL,
    owner       TEXT,
    -- Taken over from a holder that never let it go.
    takeover    BOOLEAN NOT NULL DEFAULT FALSE,
    acquired_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL
);
CREATE INDEX lock_by_age ON lock (lease_until);
