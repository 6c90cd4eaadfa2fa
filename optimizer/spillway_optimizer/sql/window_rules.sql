-- The rules of every source cluster's newest version as of the end of a window. None outlives an hour unrenewed
-- (maximum_expiry_seconds of the guardrails), and every renewal is a version.
SELECT toUnixTimestamp64Milli(at) / 1000 AS at, version, source_cluster, source_service, class, destination_cluster, weight
FROM rules
WHERE rules.at <= toDateTime64(%(end)s, 3, 'UTC') AND rules.at > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 HOUR
  AND (source_cluster, version) IN (
    SELECT source_cluster, max(version) FROM rules
    WHERE rules.at <= toDateTime64(%(end)s, 3, 'UTC') AND rules.at > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 HOUR
    GROUP BY source_cluster)
