-- The newest curve of every class as of a time, of those that can be: a row that cannot hides none before it.
SELECT toUnixTimestamp64Milli(fitted_at) / 1000 AS fitted_at, input_window, service, class, a_ms, b_ms, norm_weight
FROM curves
WHERE curves.fitted_at <= toDateTime64(%(end)s, 3, 'UTC') AND curves.fitted_at > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 HOUR
  AND abs(a_ms) < 1e7 AND abs(b_ms) < 1e7 AND norm_weight > 0 AND norm_weight < 1e7
ORDER BY curves.fitted_at DESC
LIMIT 1 BY service, class
