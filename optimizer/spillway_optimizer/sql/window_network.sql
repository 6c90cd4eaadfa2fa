-- Mean network time of every ordered pair of clusters, over the calls of a window that tell it.
SELECT source_cluster, destination_cluster,
       sum(adjusted_count * network_us) / sum(adjusted_count) / 1000 AS mean_ms, count() AS samples
FROM edges FINAL
WHERE started_at >= toDateTime64(%(start)s, 3, 'UTC') AND started_at < toDateTime64(%(end)s, 3, 'UTC') AND network_us IS NOT NULL AND destination_cluster != ''
GROUP BY source_cluster, destination_cluster
