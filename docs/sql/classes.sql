-- Traffic classes: how many calls were seen of each, and how many requests they stand for.
--   p50_ms, own_p50_ms  median duration, and median exclusive time
-- Parameters: start, end.
SELECT class, count() AS spans, round(sum(adjusted_count)) AS requests, round(sumIf(adjusted_count, failed)) AS failed,
       round(quantileTDigestWeighted(0.5)(duration_us, toUInt64(round(1000 * adjusted_count))) / 1000, 2) AS p50_ms,
       round(quantileTDigestWeighted(0.5)(exclusive_us, toUInt64(round(1000 * adjusted_count))) / 1000, 2) AS own_p50_ms
FROM calls FINAL
WHERE started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
GROUP BY class
ORDER BY class
