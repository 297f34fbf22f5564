-- The run that last changed the row by its content alone.
ALTER TABLE record ADD COLUMN hash_run INTEGER;

-- Further changes by the content alone of keys that one had already changed in that run.
ALTER TABLE run ADD COLUMN conflicts INTEGER NOT NULL DEFAULT 0;
