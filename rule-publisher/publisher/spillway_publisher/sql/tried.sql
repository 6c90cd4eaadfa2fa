-- Calls of the routes that a trial changes: routed by it, beside it, and in the same time before it.
-- A call costs the time at its caller, and its egress at the topology's price of a millisecond.
-- The request leaves the caller's cluster, and the response leaves the callee's.
WITH duration_us / 1000
     + request_bytes * transform(concat(source_cluster, '>', destination_cluster), %(links)s, %(ms_per_byte)s, 0.0)
     + response_bytes * transform(concat(destination_cluster, '>', source_cluster), %(links)s, %(ms_per_byte)s, 0.0)
     AS cost_ms
SELECT multiIf(started_at < fromUnixTimestamp64Milli(toInt64(%(since)s)), 'before',
               ruleset_version = %(version)s, 'tried', 'beside') AS kind,
       count(), sum(adjusted_count * failed) / sum(adjusted_count),
       sum(adjusted_count * cost_ms) / sum(adjusted_count) AS mean_ms, stddevPop(cost_ms)
FROM edges FINAL
WHERE started_at >= fromUnixTimestamp64Milli(toInt64(%(from)s)) AND source_service IN %(services)s
  AND class IN %(classes)s
  AND (source_cluster IN %(tried)s AND (kind = 'before' OR kind = 'tried')
       OR source_cluster IN %(beside)s AND kind = 'beside' AND ruleset_version < %(version)s)
GROUP BY kind
