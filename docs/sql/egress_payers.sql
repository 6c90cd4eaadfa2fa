-- Who pays for egress? The calls that move most bytes between clusters.
-- Use it when the bill rose, or before you allow a class to be routed to other clusters. Both
-- directions count: the request leaves the caller's cluster, and the response leaves the callee's.
-- The result has the twenty largest.
--   gb_per_hour, usd_per_hour   over the window, corrected for sampling
--   percent         of all egress
--   bytes_per_call  request and response
-- Parameters: start, end, usd_per_gb.
SELECT source_cluster, destination_cluster, source_service, class,
       round(sum(adjusted_count)) AS calls,
       sum(adjusted_count * (request_bytes + response_bytes)) / 1e9
           / (dateDiff('microsecond', {start:DateTime64(6, 'UTC')}, {end:DateTime64(6, 'UTC')}) / 3.6e9) AS gb_per_hour,
       gb_per_hour * {usd_per_gb:Float64} AS usd_per_hour,
       round(100 * gb_per_hour / sum(gb_per_hour) OVER (), 1) AS percent,
       round(sum(adjusted_count * (request_bytes + response_bytes)) / sum(adjusted_count)) AS bytes_per_call
FROM edges FINAL
WHERE source_cluster != destination_cluster
  AND started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
GROUP BY source_cluster, destination_cluster, source_service, class
ORDER BY gb_per_hour DESC, source_cluster, destination_cluster, source_service, class
LIMIT 20
