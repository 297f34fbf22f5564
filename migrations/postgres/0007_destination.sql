-- The health of destinations; one without a row has never been sent anything.
CREATE TABLE destination (
    name         TEXT COLLATE "C" PRIMARY KEY,
    -- well | recovering | failing | parked
    condition    TEXT COLLATE "C" NOT NULL DEFAULT 'well',
    since        BIGINT NOT NULL DEFAULT 0,
    reason       TEXT COLLATE "C",
    failures     BIGINT NOT NULL DEFAULT 0,
    refusals     BIGINT NOT NULL DEFAULT 0,
    probes       BIGINT NOT NULL DEFAULT 0,
    room         BIGINT NOT NULL DEFAULT 0,
    -- Nothing is sent before. Who sends a probe puts it off, so that nobody sends another meanwhile.
    not_before   BIGINT,
    delivered_at BIGINT,
    -- When a person had it paused.
    paused_at    BIGINT
);

-- Attempts that count towards the end of an event.
ALTER TABLE event RENAME COLUMN refusals TO spent;

-- When the key's event was last claimed; probes take the one that was not for longest.
ALTER TABLE outbox_head ADD COLUMN tried_at BIGINT;
