-- Who calls whom, with which probability, and how does it go?
-- Use it to see what a class depends on, and what depends on it. One row per edge of the call
-- graph.
--   probability        share of the caller's requests that make this call at all; a lower bound if
--                      a trace holds several such requests
--   calls_per_request  calls per request of the caller; above the probability if it calls more than
--                      once
--   success_percent    percentage of calls that did not fail, as the caller saw it
--   network_ms         mean, there and back
--   remote_percent     percentage of calls to another cluster
-- Parameters: start, end.
WITH
    requests AS
    (
        SELECT class AS source_class, sum(adjusted_count) AS requests
        FROM calls FINAL
        WHERE started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
        GROUP BY class
    ),
    made AS
    (
        SELECT source_class, class, trace_id, any(adjusted_count) AS weight, sum(adjusted_count) AS calls,
               sumIf(adjusted_count, failed) AS failures, sumIf(adjusted_count, source_cluster != destination_cluster) AS remote,
               sum(ifNull(network_us, 0) * adjusted_count) AS network_sum, sumIf(adjusted_count, isNotNull(network_us)) AS timed,
               sum(request_bytes * adjusted_count) AS request_sum, sum(response_bytes * adjusted_count) AS response_sum
        FROM edges FINAL
        WHERE started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
        GROUP BY source_class, class, trace_id
    )
SELECT made.source_class AS source_class, made.class AS class,
       round(sum(made.weight) / any(requests.requests), 4) AS probability,
       round(sum(made.calls) / any(requests.requests), 4) AS calls_per_request,
       round(100 * (1 - sum(made.failures) / sum(made.calls)), 2) AS success_percent,
       round(sum(made.network_sum) / sum(made.timed) / 1000, 3) AS network_ms,
       round(100 * sum(made.remote) / sum(made.calls), 1) AS remote_percent,
       round(sum(made.request_sum) / sum(made.calls)) AS request_bytes_mean,
       round(sum(made.response_sum) / sum(made.calls)) AS response_bytes_mean
FROM made INNER JOIN requests USING (source_class)
GROUP BY source_class, class
ORDER BY source_class, class
