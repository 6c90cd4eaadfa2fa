-- Exclusive time per class between two instants (Unix seconds), and the load it was measured at.
SELECT class, round(sum(adjusted_count) / (%(end)s - %(start)s), 1) AS rps,
       round(avg(exclusive_us) / 1000, 2) AS mean_ms, round(quantile(0.95)(exclusive_us) / 1000, 2) AS p95_ms
FROM calls FINAL
WHERE started_at BETWEEN fromUnixTimestamp64Micro(toInt64(%(start)s * 1000000)) AND fromUnixTimestamp64Micro(toInt64(%(end)s * 1000000))
GROUP BY class
ORDER BY class
