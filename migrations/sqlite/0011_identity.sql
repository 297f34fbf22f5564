-- What the job's stored state rests on, as JSON: a hash for each named part; null until a run has begun.
ALTER TABLE job ADD COLUMN identity TEXT;

-- Events up to this position are of an earlier uid, whose sequences are none of the records' that are stored now.
ALTER TABLE job ADD COLUMN begun_behind INTEGER NOT NULL DEFAULT 0;
