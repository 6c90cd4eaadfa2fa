-- The newest capacity of every service in every cluster as of a time.
SELECT toUnixTimestamp64Milli(measured_at) / 1000 AS measured_at, input_window, cluster, service, capacity_rps, pods, evidence
FROM capacities
WHERE capacities.measured_at <= toDateTime64(%(end)s, 3, 'UTC') AND capacities.measured_at > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 HOUR
ORDER BY capacities.measured_at DESC
LIMIT 1 BY service, cluster
