-- What waits for one another: the key, or the event's id where the destination keeps no order. Only the first event of
-- a lane can be claimed.
ALTER TABLE event ADD COLUMN lane TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE event SET lane = key;
ALTER TABLE outbox_head RENAME COLUMN key TO lane;
DROP INDEX event_waiting;
CREATE INDEX event_waiting ON event (destination, job, partition, lane, position) WHERE state = 'pending';

-- The message that the event was last sent in, for as long as it may have been received: it is repeated as it was,
-- alone under the event's id or in a batch with the others of the same message.
ALTER TABLE outbox_head ADD COLUMN message TEXT COLLATE "C";
UPDATE outbox_head SET message = (SELECT event.event_id FROM event WHERE event.position = outbox_head.position)
WHERE leased OR (SELECT event.ambiguous FROM event WHERE event.position = outbox_head.position);
CREATE INDEX outbox_message ON outbox_head (destination, message, position) WHERE message IS NOT NULL;
-- It was refused for good, and its lane waits for a person.
ALTER TABLE outbox_head ADD COLUMN held BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX outbox_held ON outbox_head (job) WHERE held;

-- The batch that it was an attempt for; none for an event that went alone. An outcome can also be 'split'.
ALTER TABLE attempt ADD COLUMN batch TEXT COLLATE "C";
-- What the answer meant: delivered | failed | lost | unreached | misplaced | refused | too_large | busy; none for older attempts.
ALTER TABLE attempt ADD COLUMN class TEXT COLLATE "C";
