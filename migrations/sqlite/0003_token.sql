-- The access tokens of accounts, each with the refresh token that the next one is traded in for.
CREATE TABLE account_token (
    account       TEXT    PRIMARY KEY,
    -- Grows by one with each token; 0 before the first.
    number        INTEGER NOT NULL,
    -- A hash of the login in the configuration that it was made for.
    login         TEXT    NOT NULL,
    access_token  TEXT,
    refresh_token TEXT,
    -- By the clock of the process that asked for it.
    obtained_at   INTEGER,
    expires_at    INTEGER,
    -- Until when one process alone may ask for the next one.
    claimed_until INTEGER
) STRICT, WITHOUT ROWID;
