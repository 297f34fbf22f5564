-- The access tokens of accounts, each with the refresh token that the next one is traded in for.
CREATE TABLE account_token (
    account       TEXT COLLATE "C" PRIMARY KEY,
    -- Grows by one with each token; 0 before the first.
    number        BIGINT NOT NULL,
    -- A hash of the login in the configuration that it was made for.
    login         TEXT COLLATE "C" NOT NULL,
    access_token  TEXT COLLATE "C",
    refresh_token TEXT COLLATE "C",
    -- By the clock of the process that asked for it.
    obtained_at   BIGINT,
    expires_at    BIGINT,
    -- Until when one process alone may ask for the next one.
    claimed_until BIGINT
);
