-- When the body of an event was purged, which is empty since then.
ALTER TABLE event ADD COLUMN purged_at INTEGER;
-- What is purged next is found here, the oldest first: bodies of settled events, then the events themselves.
CREATE INDEX event_body_over ON event (settled_at)
    WHERE purged_at IS NULL AND state IN ('delivered', 'superseded', 'discarded');
CREATE INDEX event_over ON event (settled_at) WHERE purged_at IS NOT NULL;
CREATE INDEX run_over ON run (ended_at) WHERE status <> 'running';

-- Keys whose versions are below have been forgotten; null where none has. It never moves down.
ALTER TABLE progress ADD COLUMN floor INTEGER;
-- When version and content of a key were forgotten; the key, its last sequence and whether it was deleted stay.
ALTER TABLE record ADD COLUMN forgotten_at INTEGER;
-- Records below the floor that nothing is known of.
ALTER TABLE run ADD COLUMN below_floor INTEGER NOT NULL DEFAULT 0;
