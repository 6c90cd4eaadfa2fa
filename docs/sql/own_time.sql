-- How much own (exclusive) time does each class take between two instants, and at which load was
-- that?
--   rps              requests per second, corrected for sampling
--   mean_ms, p95_ms  exclusive time
-- Parameters: start, end.
SELECT class, round(sum(adjusted_count) / (dateDiff('microsecond', {start:DateTime64(6, 'UTC')}, {end:DateTime64(6, 'UTC')}) / 1e6), 1) AS rps,
       round(avgWeighted(exclusive_us, adjusted_count) / 1000, 2) AS mean_ms,
       round(quantileTDigestWeighted(0.95)(exclusive_us, toUInt64(round(1000 * adjusted_count))) / 1000, 2) AS p95_ms
FROM calls FINAL
WHERE started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
GROUP BY class
ORDER BY class
