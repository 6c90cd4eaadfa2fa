-- The newest capacity of every service in every cluster.
SELECT toUnixTimestamp64Milli(measured_at) / 1000 AS measured_at, input_window, cluster, service, capacity_rps
FROM capacities
WHERE capacities.measured_at > now() - INTERVAL 1 HOUR
ORDER BY capacities.measured_at DESC
LIMIT 1 BY service, cluster
