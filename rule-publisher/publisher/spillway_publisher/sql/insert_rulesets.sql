INSERT INTO rulesets (at, ruleset_id, version, origin, policy, input_window, outcome, reason) VALUES
