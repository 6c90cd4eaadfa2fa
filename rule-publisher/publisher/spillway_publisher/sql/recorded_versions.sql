-- Versions of the bucket's history that have rows in rulesets already.
SELECT DISTINCT version FROM rulesets WHERE version IN %(versions)s
