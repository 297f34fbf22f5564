-- How many runs failed on the step at the watermark, one after another.
ALTER TABLE progress ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
