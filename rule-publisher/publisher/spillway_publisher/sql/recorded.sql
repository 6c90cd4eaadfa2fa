-- Rulesets of the bucket's history that have rows in rulesets already.
SELECT DISTINCT ruleset_id FROM rulesets WHERE ruleset_id IN %(ids)s
