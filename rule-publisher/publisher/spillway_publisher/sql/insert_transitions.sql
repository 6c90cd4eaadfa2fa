INSERT INTO transitions (at, ruleset_id, version, state, origin, reason) VALUES
