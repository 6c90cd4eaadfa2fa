-- How wide is a class's latency at a load, such as 70 % of the capacity?
-- Use it before you promise a tail: two classes with the same mean can be of very different width.
-- The answer comes from the newest curve of each class, for any load. tail_latency.sql has the
-- quantiles of calls that were measured.
--   mean_ms   own (exclusive) time of a call at this load, a / (1 - u) + b
--   sd_ms     its standard deviation, over the calls of all clusters; NULL: not known
--   relative  sd_ms / mean_ms; 1 is that of exponential times, such as those of an M/M/1 queue
--   seen_to   highest utilisation that the curve was fitted on; beyond it both are a guess
-- Parameters: utilisation (0.7).
SELECT class, round(a / (1 - {utilisation:Float64}) + b, 3) AS mean_ms,
       if(isNaN(sd_a + sd_b), NULL, round(sd_a / (1 - {utilisation:Float64}) + sd_b, 3)) AS sd_ms,
       round(sd_ms / nullIf(mean_ms, 0), 2) AS relative, round(u_max, 2) AS seen_to, phase
FROM
(
    SELECT service, class, argMax(a_ms, fitted_at) AS a, argMax(b_ms, fitted_at) AS b, argMax(sd_a_ms, fitted_at) AS sd_a,
           argMax(sd_b_ms, fitted_at) AS sd_b, argMax(curves.u_max, fitted_at) AS u_max, argMax(curves.phase, fitted_at) AS phase
    FROM curves GROUP BY service, class
)
ORDER BY class
