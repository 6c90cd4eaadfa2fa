-- Versions of the bucket's history that have their row already.
SELECT DISTINCT version FROM rulesets WHERE version IN (%(versions)s)
