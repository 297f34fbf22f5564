-- What became of a replay's events is counted again and again while somebody watches it.
CREATE INDEX event_of_replay_by_state ON event (replay, state) WHERE replay IS NOT NULL;
