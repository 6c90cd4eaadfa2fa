-- Whose prediction was wrong, and since when?
-- Use it before you trust a prediction, and to find the class whose curve needs a check
-- (curve_changes.sql). For each source, class and destination, it looks at the newest ruleset that
-- routed enough calls. There is a row if the prediction of that ruleset was off by more than the
-- tolerance.
--   ruleset       that newest version
--   predicted     network time plus own time of the callee in ms, as the rules predicted
--   observed      the same, measured on the calls that the ruleset routed
--   error_newest  relative: 0.5 takes half as long again as predicted, -0.3 is 30 % faster
--   wrong_since   when the first ruleset of the current run of wrong ones was published;
--                 wrong_rulesets is their number
-- Parameters: start, end (of the calls that are compared), tolerance (relative, 0.3), min_calls
-- (versions with fewer spans are left out).
WITH
    said AS
    (
        SELECT version, source_cluster, source_service, class, destination_cluster,
               min(at) AS published_at, any(predicted_compute_ms + predicted_network_ms) AS predicted_ms
        FROM rules WHERE weight > 0
        GROUP BY version, source_cluster, source_service, class, destination_cluster
    ),
    served AS
    (
        SELECT trace_id, class, cluster AS destination_cluster, avg(exclusive_us) AS own_us
        FROM calls FINAL
        WHERE NOT failed AND started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
        GROUP BY trace_id, class, cluster
    ),
    seen AS
    (
        SELECT e.ruleset_version AS version, e.source_cluster AS source_cluster, e.source_service AS source_service,
               e.class AS class, e.destination_cluster AS destination_cluster,
               avgWeighted(ifNull(e.network_us, 0) + served.own_us, e.adjusted_count) / 1000 AS observed_ms
        FROM
        (
            SELECT * FROM edges FINAL
            WHERE NOT failed AND ruleset_version > 0
              AND started_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
        ) AS e
        INNER JOIN served ON served.trace_id = e.trace_id AND served.class = e.class
            AND served.destination_cluster = e.destination_cluster
        GROUP BY version, source_cluster, source_service, class, destination_cluster
        HAVING count() >= {min_calls:UInt64}
    ),
    judged AS
    (
        SELECT *, observed_ms / predicted_ms - 1 AS error, abs(error) > {tolerance:Float64} AS is_wrong,
               max(if(is_wrong, 0, version)) OVER (PARTITION BY source_cluster, source_service, class, destination_cluster) AS last_right
        FROM said INNER JOIN seen USING (version, source_cluster, source_service, class, destination_cluster)
        WHERE predicted_ms > 0
    )
SELECT source_cluster AS source, source_service, class, destination_cluster AS destination,
       max(version) AS ruleset,
       round(argMax(predicted_ms, version), 3) AS predicted, round(argMax(observed_ms, version), 3) AS observed,
       round(argMax(error, version), 3) AS error_newest,
       min(published_at) AS wrong_since, count() AS wrong_rulesets
FROM judged
WHERE version > last_right
GROUP BY source_cluster, source_service, class, destination_cluster
ORDER BY abs(error_newest) DESC, source, class, destination
