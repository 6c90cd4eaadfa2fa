-- Rulesets of the bucket's history that have rows in rules already.
SELECT DISTINCT ruleset_id FROM rules WHERE ruleset_id IN %(ids)s
