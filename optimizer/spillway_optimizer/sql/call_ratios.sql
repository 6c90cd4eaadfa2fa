-- The newest ratio of every edge of the call graph as of a time, of those that can be.
SELECT toUnixTimestamp64Milli(window_end) / 1000 AS window_end, input_window, source_class, class,
       calls_per_request, request_bytes, response_bytes, samples, wait_share
FROM call_ratios
WHERE call_ratios.window_end <= toDateTime64(%(end)s, 3, 'UTC') AND call_ratios.window_end > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 HOUR
  AND calls_per_request >= 0 AND calls_per_request < 1e7 AND request_bytes >= 0 AND request_bytes < 1e15 AND response_bytes >= 0 AND response_bytes < 1e15
ORDER BY call_ratios.window_end DESC
LIMIT 1 BY source_class, class
