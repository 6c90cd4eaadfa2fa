-- What did the slowest requests of a class do? Their raw spans, in order.
-- Use it after tail_latency.sql, to look into single requests. Raw spans are kept for a sample of
-- traces and for some hours. The result has the slowest of the requests with raw spans.
--   call_ms, own_ms  duration of the request of the class, and its exclusive time
--   at_ms, span_ms   start of the span after the first span of the trace, and its duration
-- Parameters: class, start, end, traces (how many).
WITH
    slowest AS
    (
        SELECT trace_id, span_id, cluster, duration_us, exclusive_us FROM calls FINAL
        WHERE class = {class:String} AND started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
          AND trace_id IN (SELECT trace_id FROM spans WHERE started_at BETWEEN {start:DateTime64(6, 'UTC')} - 60 AND {end:DateTime64(6, 'UTC')} + 60)
        ORDER BY duration_us DESC, trace_id
        LIMIT {traces:UInt64}
    )
SELECT c.trace_id AS trace_id, c.cluster AS cluster, round(c.duration_us / 1000, 3) AS call_ms,
       round(c.exclusive_us / 1000, 3) AS own_ms,
       round(dateDiff('microsecond', min(s.started_at) OVER (PARTITION BY c.trace_id, c.span_id), s.started_at) / 1000, 3) AS at_ms,
       round(s.duration_us / 1000, 3) AS span_ms, s.kind AS kind, s.cluster AS span_cluster, s.service AS span_service,
       s.name AS name, s.failed AS failed, s.span_id AS span_id, s.parent_id AS parent_id
FROM (SELECT * FROM spans FINAL WHERE trace_id IN (SELECT trace_id FROM slowest)) AS s
INNER JOIN slowest AS c ON c.trace_id = s.trace_id
ORDER BY c.duration_us DESC, c.trace_id, s.started_at, s.kind
