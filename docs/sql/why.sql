-- Why does the ruleset in force send what where, and was its prediction right? One row per source
-- cluster, class and destination. A prediction is compared only with calls of its own period: the
-- calls of the last two minutes that were routed by these weights. Calls that an earlier version
-- with other weights or of another policy routed do not count.
--   ruleset                   the newest version; since_version is the first one with these
--                             weights. The routes of a service carry the version in which one of
--                             its weights, or the policy, last changed
--   sent_percent              percentage of the observed calls that went to this destination;
--                             weight_percent is the percentage by the rule
--   predicted_..., observed_  network time, and the callee's own time (of calls that did not fail),
--                             in ms. Empty: no such call was observed yet
WITH
    published AS (SELECT version, policy FROM rulesets WHERE outcome = 'published'),
    (SELECT argMax(policy, version) FROM published) AS newest_policy,
    (SELECT max(version) FROM published WHERE policy != newest_policy) AS last_of_another_policy,
    said AS
    (
        SELECT DISTINCT * EXCEPT (at) FROM rules
        WHERE version > last_of_another_policy AND version IN (SELECT version FROM published)
    ),
    routes AS
    (
        SELECT source_cluster, source_service, version,
               arraySort(groupUniqArray((class, destination_cluster, weight))) AS weights
        FROM said WHERE weight > 0
        GROUP BY source_cluster, source_service, version
    ),
    newest AS
    (
        SELECT source_cluster, source_service, max(version) AS newest_version, argMax(weights, version) AS newest_weights
        FROM routes GROUP BY source_cluster, source_service
    ),
    periods AS
    (
        SELECT source_cluster, source_service, any(newest.newest_version) AS newest_version,
               maxIf(routes.version, routes.weights != newest.newest_weights) AS last_of_other_weights,
               arrayMin(arrayFilter(v -> v > last_of_other_weights, groupArray(routes.version))) AS since_version
        FROM routes INNER JOIN newest USING (source_cluster, source_service)
        GROUP BY source_cluster, source_service
    ),
    latest AS
    (
        SELECT said.source_cluster AS source_cluster, said.source_service AS source_service, said.class AS class,
               said.destination_cluster AS destination_cluster, any(periods.newest_version) AS newest_version,
               any(periods.since_version) AS since_version, any(said.weight) AS weight,
               any(said.predicted_compute_ms) AS predicted_compute_ms,
               any(said.predicted_network_ms) AS predicted_network_ms
        FROM said INNER JOIN periods USING (source_cluster, source_service)
        WHERE said.version = periods.newest_version AND said.weight > 0
        GROUP BY source_cluster, source_service, class, destination_cluster
    ),
    served AS
    (
        SELECT trace_id, class, cluster AS destination_cluster, avg(exclusive_us) AS own_us
        FROM calls FINAL
        WHERE NOT failed AND started_at > (SELECT max(started_at) FROM edges) - INTERVAL 120 SECOND
        GROUP BY trace_id, class, destination_cluster
    ),
    routed AS
    (
        SELECT e.source_cluster AS source_cluster, e.source_service AS source_service, e.class AS class,
               e.destination_cluster AS destination_cluster, sum(e.adjusted_count) AS calls,
               avgWeighted(e.network_us, e.adjusted_count) / 1000 AS observed_network_ms,
               avgWeightedIf(served.own_us, e.adjusted_count, NOT e.failed AND served.trace_id != '') / 1000 AS observed_own_ms
        FROM (SELECT * FROM edges FINAL WHERE started_at > (SELECT max(started_at) FROM edges) - INTERVAL 120 SECOND) AS e
        INNER JOIN periods ON periods.source_cluster = e.source_cluster AND periods.source_service = e.source_service
        LEFT JOIN served ON served.trace_id = e.trace_id AND served.class = e.class
            AND served.destination_cluster = e.destination_cluster
        WHERE e.ruleset_version BETWEEN periods.since_version AND periods.newest_version
        GROUP BY source_cluster, source_service, class, destination_cluster
    )
SELECT latest.source_cluster AS source,
       latest.class AS class,
       latest.destination_cluster AS destination,
       latest.newest_version AS ruleset,
       latest.since_version AS since_version,
       latest.weight / 100 AS weight_percent,
       round(100 * routed.calls / nullIf(sum(routed.calls) OVER (PARTITION BY latest.source_cluster, latest.source_service, latest.class), 0), 1) AS sent_percent,
       round(latest.predicted_network_ms, 1) AS predicted_network_ms,
       round(routed.observed_network_ms, 1) AS observed_network_ms,
       round(latest.predicted_compute_ms, 1) AS predicted_own_ms,
       if(isFinite(routed.observed_own_ms), round(routed.observed_own_ms, 1), NULL) AS observed_own_ms
FROM latest
LEFT JOIN routed USING (source_cluster, source_service, class, destination_cluster)
ORDER BY source, class, destination
