-- How fresh and how complete is what is stored?
-- Ask this first, because every other answer is only as fresh as this one. One row per table and
-- per job. The query reads little, because it is asked during incidents: it uses no FINAL, and
-- reads traces of the last five minutes only.
--   rows         stored rows; in a table, rows that replace others count until they are merged
--   newest       time of the newest event in the table; for a job, the tick of its topic's slowest
--                partition
--   stored       when a row was last stored
--   delay_p99_s  time from event to storage, for rows of the last five minutes. Waiting for a trace
--                takes 2 to 42 s of it
--   incomplete   traces of the last five minutes whose rows were computed from different views of
--                the trace: a late span arrived, or a row was lost
-- Replayed traces keep their old times: judge them by `stored`.
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
