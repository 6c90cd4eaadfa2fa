-- Why does the ruleset in force send what where, and was its prediction right? One row per source
-- cluster, class and destination, over the calls that versions of the newest policy routed. The
-- window is the last two minutes of routed calls.
WITH
    (SELECT argMax(policy, version) FROM rulesets WHERE outcome = 'published') AS newest_policy,
    routed AS
    (
        SELECT source_cluster, source_service, class, destination_cluster,
               sum(adjusted_count) AS calls,
               avgWeighted(network_us, adjusted_count) / 1000 AS observed_network_ms
        FROM edges FINAL
        WHERE ruleset_version IN (SELECT version FROM rulesets WHERE outcome = 'published' AND policy = newest_policy)
          AND started_at > (SELECT max(started_at) FROM edges) - INTERVAL 120 SECOND
        GROUP BY source_cluster, source_service, class, destination_cluster
    ),
    latest AS
    (
        SELECT source_cluster, source_service, class, destination_cluster,
               argMax(weight, version) AS weight,
               argMax(predicted_compute_ms, version) AS predicted_compute_ms,
               argMax(predicted_network_ms, version) AS predicted_network_ms,
               max(version) AS newest_version
        FROM rules
        WHERE version IN (SELECT version FROM rulesets WHERE outcome = 'published' AND policy = newest_policy)
        GROUP BY source_cluster, source_service, class, destination_cluster
    )
SELECT latest.source_cluster AS source,
       latest.class AS class,
       latest.destination_cluster AS destination,
       latest.newest_version AS ruleset,
       latest.weight / 100 AS weight_percent,
       round(100 * routed.calls / sum(routed.calls) OVER (PARTITION BY latest.source_cluster, latest.class), 1) AS sent_percent,
       round(latest.predicted_network_ms, 1) AS predicted_network_ms,
       round(routed.observed_network_ms, 1) AS observed_network_ms,
       round(latest.predicted_compute_ms, 1) AS predicted_own_ms,
       round(served.exclusive_ms, 1) AS observed_own_ms
FROM latest
LEFT JOIN routed USING (source_cluster, source_service, class, destination_cluster)
LEFT JOIN
(
    SELECT class, cluster AS destination_cluster, avgWeighted(exclusive_us, adjusted_count) / 1000 AS exclusive_ms
    FROM calls FINAL
    WHERE NOT failed AND started_at > (SELECT max(started_at) FROM calls) - INTERVAL 120 SECOND
    GROUP BY class, cluster
) AS served USING (class, destination_cluster)
WHERE latest.weight > 0
ORDER BY source, class, destination
