-- Where the walk stands that has not reached its end, as JSON; null where the next run reads its window from
-- the beginning.
ALTER TABLE progress ADD COLUMN bookmark TEXT;

-- What the source gave to go on from, as JSON; null where it is asked by versions.
ALTER TABLE progress ADD COLUMN sync_token TEXT;

-- The validator of the last complete listing, as JSON; null where it had several pages or none was given.
ALTER TABLE progress ADD COLUMN page_tag TEXT;

-- The run went on where one before it was cut off.
ALTER TABLE run ADD COLUMN resumed BOOLEAN NOT NULL DEFAULT FALSE;
