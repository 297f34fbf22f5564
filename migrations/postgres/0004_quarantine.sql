-- Records without a version that a run left out.
ALTER TABLE run ADD COLUMN skipped BIGINT NOT NULL DEFAULT 0;

-- By the source's clock, when the first page that held the record was asked for: what is complete does not
-- reach beyond it. Rows from before this column are taken to be as old as their first sighting.
ALTER TABLE quarantine ADD COLUMN unread_since BIGINT NOT NULL DEFAULT 0;
UPDATE quarantine SET unread_since = first_seen_at;

-- When a person said to pass over this text. It stays, so that it is not listed anew.
ALTER TABLE quarantine ADD COLUMN skipped_at BIGINT;

-- The record was first met before the baseline was complete.
ALTER TABLE quarantine ADD COLUMN in_baseline BOOLEAN NOT NULL DEFAULT FALSE;
