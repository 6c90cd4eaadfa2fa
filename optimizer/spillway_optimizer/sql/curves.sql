-- The newest curve of every class as of a time, of those that can be: a row that cannot hides none before it.
-- A spread, correlation or error that cannot be is unknown, and so are those of rows from before these columns. No spread is
-- below 0 at any load.
SELECT toUnixTimestamp64Milli(fitted_at) / 1000 AS fitted_at, input_window, service, class, a_ms, b_ms, norm_weight,
       u_max,
       curves.sd_a_ms >= 0 AND curves.sd_a_ms < 1e7 AND abs(curves.sd_b_ms) < 1e7
           AND curves.sd_a_ms + curves.sd_b_ms >= 0 AS has_spread,
       if(has_spread, curves.sd_a_ms, nan) AS sd_a_ms, if(has_spread, curves.sd_b_ms, nan) AS sd_b_ms,
       if(abs(curves.ab_correlation) <= 1, curves.ab_correlation, nan) AS ab_correlation,
       if(curves.a_se_ms > 0 AND curves.a_se_ms < 1e7, curves.a_se_ms, nan) AS a_se_ms,
       if(curves.b_se_ms > 0 AND curves.b_se_ms < 1e7, curves.b_se_ms, nan) AS b_se_ms
FROM curves
WHERE curves.fitted_at <= toDateTime64(%(end)s, 3, 'UTC') AND curves.fitted_at > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 HOUR
  AND abs(a_ms) < 1e7 AND abs(b_ms) < 1e7 AND norm_weight > 0 AND norm_weight < 1e7
ORDER BY curves.fitted_at DESC
LIMIT 1 BY service, class
