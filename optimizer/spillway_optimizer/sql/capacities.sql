-- The newest capacity of every service in every cluster as of a time, of those that can be.
SELECT toUnixTimestamp64Milli(measured_at) / 1000 AS measured_at, input_window, cluster, service, capacity_rps, pods, evidence
FROM capacities
WHERE capacities.measured_at <= toDateTime64(%(end)s, 3, 'UTC') AND capacities.measured_at > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 HOUR
  AND capacity_rps >= 0 AND capacity_rps < 1e9
ORDER BY capacities.measured_at DESC
LIMIT 1 BY service, cluster
