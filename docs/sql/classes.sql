-- Traffic classes: how many calls were seen of each, and how many requests they stand for.
SELECT class, count() AS calls, round(sum(adjusted_count)) AS requests, countIf(failed) AS failed,
       round(quantile(0.5)(duration_us) / 1000, 2) AS p50_ms, round(quantile(0.5)(exclusive_us) / 1000, 2) AS own_p50_ms
FROM calls FINAL
GROUP BY class
ORDER BY class
