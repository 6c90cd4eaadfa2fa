-- Sums over the calls of a window, adjusted for sampling; times are of calls that did not fail.
SELECT c.cluster AS cluster, c.service AS service, c.class AS class, c.source_service = '' AS entry,
       sum(c.adjusted_count) AS calls,
       sumIf(c.adjusted_count, c.failed) AS failed,
       sumIf(c.adjusted_count * c.duration_us, NOT c.failed) / 1000 AS duration_ms,
       sumIf(c.adjusted_count * c.exclusive_us, NOT c.failed) / 1000 AS exclusive_ms,
       sum(c.adjusted_count * c.in_flight) AS in_flight
FROM calls AS c FINAL
WHERE c.started_at >= toDateTime64(%(start)s, 3, 'UTC') AND c.started_at < toDateTime64(%(end)s, 3, 'UTC')
GROUP BY cluster, service, class, entry
ORDER BY cluster, class, entry
