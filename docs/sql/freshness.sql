-- How fresh and how complete is what is stored?
-- Use it first: every other answer is as old as this. One row per table and per job. It reads little, because it is
-- asked when things go wrong: without FINAL, and of traces only those of the last five minutes.
--   rows            stored; of a table, those that replace others count until they are merged
--   newest          when the newest thing in it happened; of a job, the tick of its topic's slowest partition
--   stored          when something was stored last
--   delay_p99_s     happened to stored, of the last five minutes' rows: waiting for a trace is 2 to 42 s of it
--   incomplete      traces with rows of the last five minutes that were made of different views of them: a late span
--                   came, or one was lost
-- Replayed traces are as old as they are: judge them by `stored`.
SELECT * FROM
(
    SELECT 'calls' AS what, count() AS rows, max(started_at) AS newest,
           (SELECT toDateTime64(max(stored_at), 3, 'UTC') FROM calls) AS stored,
           (
               SELECT quantile(0.99)(dateDiff('millisecond', started_at, toDateTime64(stored_at, 6)) / 1000)
               FROM calls WHERE stored_at > now() - 300
           ) AS delay_p99_s,
           (
               SELECT count() FROM
               (
                   SELECT 1 FROM calls WHERE stored_at > now() - 300
                   GROUP BY cityHash64(trace_id) HAVING min(trace_spans) != max(trace_spans)
               )
           ) AS incomplete
    FROM calls
    UNION ALL
    SELECT 'edges', count(), max(started_at),
           (SELECT toDateTime64(max(stored_at), 3, 'UTC') FROM edges),
           (
               SELECT quantile(0.99)(dateDiff('millisecond', started_at, toDateTime64(stored_at, 6)) / 1000)
               FROM edges WHERE stored_at > now() - 300
           ),
           (
               SELECT count() FROM
               (
                   SELECT 1 FROM edges WHERE stored_at > now() - 300
                   GROUP BY cityHash64(trace_id) HAVING min(trace_spans) != max(trace_spans)
               )
           )
    FROM edges
    UNION ALL
    SELECT concat('job ', job, ', ', topic), count(), toDateTime64(min(bitShiftRight(sequence, 10)) / 2, 6, 'UTC'), max(stored_at),
           quantile(0.99)(dateDiff('millisecond', toDateTime64(bitShiftRight(sequence, 10) / 2, 3, 'UTC'), stored_at) / 1000), 0
    FROM positions FINAL
    GROUP BY job, topic
)
ORDER BY what
