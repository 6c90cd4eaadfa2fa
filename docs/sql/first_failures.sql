-- Where do calls fail first? The edges at the root of failed requests, not those that only pass a
-- failure on.
-- Use it in an incident, when one failing service makes all of its callers fail. A failed call
-- counts if the callee itself made no failed call in that trace.
--   failures          failed calls, corrected for sampling
--   percent           of all calls that fail first
--   answered_percent  percentage of these failures in which the callee also has a failed request.
--                     Near 100, the service is at fault. Near 0, no service received the call, or
--                     the callee reported success: look at the network, a proxy or a timeout
--   failing_since     time of the first failure in the window
-- Parameters: start, end.
WITH
    failing AS
    (
        SELECT * FROM edges FINAL
        WHERE failed AND started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
    ),
    passed_on AS (SELECT DISTINCT trace_id, source_cluster AS destination_cluster, source_class AS class FROM failing),
    refused AS
    (
        SELECT DISTINCT trace_id, cluster AS destination_cluster, class FROM calls FINAL
        WHERE failed AND started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
    ),
    roots AS
    (
        SELECT failing.* FROM failing LEFT ANTI JOIN passed_on USING (trace_id, destination_cluster, class)
    )
SELECT source_cluster, source_service, destination_cluster, class,
       round(sum(adjusted_count)) AS failures,
       round(100 * failures / sum(failures) OVER (), 1) AS percent,
       round(100 * sumIf(adjusted_count, (trace_id, destination_cluster, class) IN (SELECT * FROM refused)) / sum(adjusted_count), 1) AS answered_percent,
       topKWeighted(1)(status, toUInt64(round(adjusted_count)))[1] AS usual_status,
       min(started_at) AS failing_since
FROM roots
GROUP BY source_cluster, source_service, destination_cluster, class
ORDER BY failures DESC, source_cluster, source_service, destination_cluster, class
