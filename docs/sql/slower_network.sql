-- Which pair of clusters got slower between them, against an earlier window?
-- Use it when latency rose and the own time of no service did. Network time is a call's time at the
-- caller minus the callee's own time. Clock differences and slow services therefore do not affect
-- it. Quantiles come from a histogram and are accurate to 4 %.
--   calls, calls_earlier     calls behind the figures
--   mean_ms, p50_ms, p99_ms  there and back, in the window
--   mean_change, p99_change  as a ratio to the earlier window: 1.5 takes half as long again
-- Parameters: start, end, earlier_start, earlier_end.
WITH
    at BETWEEN toDateTime({start:DateTime64(6, 'UTC')}) AND toDateTime({end:DateTime64(6, 'UTC')}) AS is_now,
    at BETWEEN toDateTime({earlier_start:DateTime64(6, 'UTC')}) AND toDateTime({earlier_end:DateTime64(6, 'UTC')}) AS is_earlier,
    pow(1.04, bucket) / 1000 AS up_to_ms,
    toUInt64(round(calls * 1000)) AS weight
SELECT source_cluster, destination_cluster,
       round(sumIf(calls, is_now)) AS calls_now,
       round(sumIf(calls, is_earlier)) AS calls_earlier,
       round(sumIf(time_us, is_now) / sumIf(calls, is_now) / 1000, 3) AS mean_ms,
       round(quantileExactWeightedIf(0.5)(up_to_ms, weight, is_now), 3) AS p50_ms,
       round(quantileExactWeightedIf(0.99)(up_to_ms, weight, is_now), 3) AS p99_ms,
       round(mean_ms / (sumIf(time_us, is_earlier) / sumIf(calls, is_earlier) / 1000), 3) AS mean_change,
       round(p99_ms / quantileExactWeightedIf(0.99)(up_to_ms, weight, is_earlier), 3) AS p99_change
FROM network_parts FINAL
WHERE is_now OR is_earlier
GROUP BY source_cluster, destination_cluster
HAVING countIf(is_now) > 0 AND countIf(is_earlier) > 0
ORDER BY mean_change DESC, source_cluster, destination_cluster
