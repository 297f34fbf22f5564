-- The last run of its kind, and the last one that was well, stay as long as the job.
CREATE INDEX run_of_kind ON run (job, kind, id);
CREATE INDEX run_that_was_well ON run (job, kind, id) WHERE status = 'ok';

-- Records that a person accepted are kept by their own age.
CREATE INDEX sighting_accepted ON sighting (decided_at) WHERE page = 0;
