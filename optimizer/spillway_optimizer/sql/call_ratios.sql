-- The newest ratio of every edge of the call graph as of a time.
SELECT toUnixTimestamp64Milli(window_end) / 1000 AS window_end, input_window, source_class, class,
       calls_per_request, request_bytes, response_bytes
FROM call_ratios
WHERE call_ratios.window_end <= toDateTime64(%(end)s, 3, 'UTC') AND call_ratios.window_end > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 HOUR
ORDER BY call_ratios.window_end DESC
LIMIT 1 BY source_class, class
