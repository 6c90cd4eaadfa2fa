-- The newest minute of every ordered pair of clusters that was measured in the last day.
SELECT toUnixTimestamp64Milli(window_end) / 1000 AS window_end, source_cluster, destination_cluster, mean_ms, samples
FROM network_times
WHERE network_times.window_end <= toDateTime64(%(end)s, 3, 'UTC') AND network_times.window_end > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 DAY
    AND samples >= 5 AND mean_ms >= 0 AND mean_ms < 1e7
ORDER BY network_times.window_end DESC
LIMIT 12 BY source_cluster, destination_cluster
