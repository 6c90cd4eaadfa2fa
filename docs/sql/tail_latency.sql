-- How does the tail of a class grow with load, in each cluster?
-- Use it to choose a maximum utilisation: the mean still looks good at loads where the tail does
-- not. A call counts at the load of its whole service in its second: requests, in units of the
-- baseline class, divided by capacity.
--   utilisation  tenths of capacity: 0.7 is 70 % up to 80 %; NULL while no capacity is known
--   p50_ms ...   own (exclusive) time of calls that did not fail; felt_p99_ms includes the time of
--                the calls below
-- Parameters: class, start, end.
WITH
    weights AS (SELECT service, class, argMax(norm_weight, fitted_at) AS weight FROM curves GROUP BY service, class),
    known AS (SELECT service, cluster, argMax(capacity_rps, measured_at) AS capacity FROM capacities GROUP BY service, cluster),
    load AS
    (
        SELECT l.service AS service, l.cluster AS cluster, l.at AS at,
               sum(l.arrivals * if(weights.weight > 0, weights.weight, 1)) AS rps
        FROM load_1s AS l LEFT JOIN weights ON weights.service = l.service AND weights.class = l.class
        WHERE l.at BETWEEN toDateTime({start:DateTime64(6, 'UTC')}) AND toDateTime({end:DateTime64(6, 'UTC')})
        GROUP BY service, cluster, at
    )
SELECT c.cluster AS cluster, if(known.capacity > 0, floor(10 * least(load.rps / known.capacity, 0.99)) / 10, NULL) AS utilisation,
       round(sum(c.adjusted_count)) AS calls,
       round(quantileTDigestWeighted(0.5)(c.exclusive_us, c.weight) / 1000, 3) AS p50_ms,
       round(quantileTDigestWeighted(0.95)(c.exclusive_us, c.weight) / 1000, 3) AS p95_ms,
       round(quantileTDigestWeighted(0.99)(c.exclusive_us, c.weight) / 1000, 3) AS p99_ms,
       round(quantileTDigestWeighted(0.99)(c.duration_us, c.weight) / 1000, 3) AS felt_p99_ms
FROM
(
    SELECT *, toUInt64(round(1000 * adjusted_count)) AS weight FROM calls FINAL
    WHERE class = {class:String} AND NOT failed
      AND toDateTime(started_at, 'UTC') BETWEEN toDateTime({start:DateTime64(6, 'UTC')}) AND toDateTime({end:DateTime64(6, 'UTC')})
) AS c
INNER JOIN load ON load.service = c.service AND load.cluster = c.cluster AND load.at = toDateTime(c.started_at, 'UTC')
LEFT JOIN known ON known.service = c.service AND known.cluster = c.cluster
GROUP BY cluster, utilisation
ORDER BY cluster, utilisation
