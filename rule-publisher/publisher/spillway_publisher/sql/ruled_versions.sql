-- Versions of the bucket's history that have rows in rules already.
SELECT DISTINCT version FROM rules WHERE version IN %(versions)s
