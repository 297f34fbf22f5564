-- Where the walk stands that has not reached its end, as JSON; null where the next run reads its window from
-- the beginning.
ALTER TABLE progress ADD COLUMN bookmark TEXT;
