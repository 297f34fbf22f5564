-- How often an event had been sent again on a person's word: 0 is the event of the change itself. The latest row of
-- an id tells what became of the event; those before it are settled. A state can also be 'discarded'.
ALTER TABLE event ADD COLUMN redelivery INTEGER NOT NULL DEFAULT 0;
DROP INDEX event_by_id;
CREATE UNIQUE INDEX event_by_id ON event (event_id, redelivery);

-- A redelivery has the sequence of its event and goes behind what waits: a key's events go out by position.
DROP INDEX event_waiting;
CREATE INDEX event_waiting ON event (destination, job, partition, key, position) WHERE state = 'pending';
