-- Is the history of the load plausible: does load_1s, which every curve rests on, agree with the
-- calls themselves?
-- Use it when a curve or a board looks odd. Both sides are computed from the same spans in
-- different ways, so every difference is a row that is missing or counted twice. Leave the newest
-- seconds out of the window, because their traces may still be open.
--   from_calls, from_load   calls in the window, corrected for sampling
--   difference              from_load - from_calls: 0, except for rounding
--   seconds, wrong_seconds  seconds with calls, and those in which the two differ
--   worst                   the second with the largest difference
-- Parameters: start, end.
SELECT service, class, cluster, round(sum(c.calls), 3) AS from_calls, round(sum(l.calls), 3) AS from_load,
       round(sum(l.calls - c.calls), 3) AS difference, count() AS seconds,
       countIf(abs(l.calls - c.calls) > 1e-6 * greatest(l.calls, c.calls)) AS wrong_seconds,
       argMax(at, abs(l.calls - c.calls)) AS worst
FROM
(
    SELECT service, class, cluster, toDateTime(started_at, 'UTC') AS at, sum(adjusted_count) AS calls
    FROM calls FINAL
    WHERE toDateTime(started_at, 'UTC') BETWEEN toDateTime({start:DateTime64(6, 'UTC')}) AND toDateTime({end:DateTime64(6, 'UTC')})
    GROUP BY service, class, cluster, at
) AS c
FULL OUTER JOIN
(
    SELECT service, class, cluster, at, sum(arrivals) AS calls
    FROM load_1s
    WHERE at BETWEEN toDateTime({start:DateTime64(6, 'UTC')}) AND toDateTime({end:DateTime64(6, 'UTC')})
    GROUP BY service, class, cluster, at
) AS l USING (service, class, cluster, at)
GROUP BY service, class, cluster
ORDER BY abs(difference) DESC, service, class, cluster
