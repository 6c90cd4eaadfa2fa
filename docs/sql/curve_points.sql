-- Does the curve of class X agree with what was measured, at every load?
-- Use it when a prediction was wrong (wrong_predictions.sql). If a curve is off at one load only,
-- its shape is wrong. If it is off everywhere, the capacity is wrong or the fit is old. One row per
-- tenth of capacity with samples.
--   samples, u   calls in the window at this load, and their mean utilisation
--   measured_ms  mean own time; spread_ms is its standard deviation
--   curve_ms     value of the newest curve at that load; error is relative to measured_ms
-- Parameters: class, start, end.
WITH newest AS
(
    SELECT service, class, argMax(a_ms, fitted_at) AS a, argMax(b_ms, fitted_at) AS b
    FROM curves WHERE class = {class:String} GROUP BY service, class
)
SELECT m.cluster AS cluster, m.bucket / 10 AS from_u, m.n AS samples, round(m.us / m.n, 3) AS u,
       round(m.ms / m.n, 3) AS measured_ms, round(sqrt(greatest(m.squares / m.n - pow(m.ms / m.n, 2), 0)), 3) AS spread_ms,
       round(newest.a / (1 - m.us / m.n) + newest.b, 3) AS curve_ms, round(curve_ms / measured_ms - 1, 3) AS error
FROM
(
    SELECT service, class, cluster, bucket, sum(samples) AS n, sum(utilisation_sum) AS us,
           sum(exclusive_sum_ms) AS ms, sum(exclusive_sq_ms2) AS squares
    FROM buckets FINAL
    WHERE class = {class:String} AND window_start BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
    GROUP BY service, class, cluster, bucket
    HAVING n > 0
) AS m
LEFT JOIN newest ON newest.service = m.service AND newest.class = m.class
ORDER BY cluster, from_u
