-- What did routing decision N cost, and what did it save?
-- Use it after a ruleset was published. It compares the calls that version N routed with those that
-- the version before it routed from the same service and cluster, and with the prediction for N.
-- The routes of a service carry the version in which they last changed. A positive saved_ms with a
-- higher egress is the trade that the optimizer aims for.
--   calls, calls_before       calls that N, and the version before it, routed
--   remote_percent, ..._before   percentage of these calls that left their cluster
--   felt_ms, felt_ms_before   time at the caller, including all calls below; saved_ms is the
--                             difference
--   hop_ms, predicted_hop_ms  network time plus the callee's own time: measured on the calls that
--                             were answered and did not fail, and predicted by the rules of N
--   egress_gb_per_million, ..._before   bytes between clusters, both ways, per million calls
--   egress_usd_per_hour       of N, at the given price; extra_usd_per_hour is the increase over the
--                             version before, for the same calls
-- Parameters: version, usd_per_gb (price of a GB that leaves a cluster).
WITH
    earlier AS
    (
        SELECT source_cluster, source_service, max(ruleset_version) AS version_before
        FROM edges WHERE ruleset_version < {version:UInt64} GROUP BY source_cluster, source_service
    ),
    routed AS
    (
        SELECT e.*, e.ruleset_version = {version:UInt64} AS is_after, e.source_cluster != e.destination_cluster AS is_remote,
               (e.request_bytes + e.response_bytes) * is_remote / 1e9 AS egress_gb
        FROM (SELECT * FROM edges FINAL WHERE ruleset_version <= {version:UInt64}) AS e
        LEFT JOIN earlier ON earlier.source_cluster = e.source_cluster AND earlier.source_service = e.source_service
        WHERE is_after OR e.ruleset_version = earlier.version_before
    ),
    served AS
    (
        SELECT trace_id, class, cluster AS destination_cluster, avg(exclusive_us) AS own_us
        FROM calls FINAL
        WHERE NOT failed AND trace_id IN (SELECT trace_id FROM edges WHERE ruleset_version = {version:UInt64})
          AND started_at >= (SELECT min(started_at) FROM edges WHERE ruleset_version = {version:UInt64}) - INTERVAL 1 MINUTE
        GROUP BY trace_id, class, cluster
    ),
    predicted AS
    (
        SELECT source_cluster, class,
               sum(weight * (predicted_compute_ms + predicted_network_ms)) / sum(weight) AS predicted_hop_ms
        FROM (SELECT DISTINCT * EXCEPT (at) FROM rules WHERE version = {version:UInt64} AND weight > 0)
        GROUP BY source_cluster, class
    ),
    observed AS
    (
        SELECT r.source_cluster AS source_cluster, r.class AS class,
               sumIf(r.adjusted_count, r.is_after) AS calls,
               sumIf(r.adjusted_count, NOT r.is_after) AS calls_before,
               sumIf(r.adjusted_count, r.is_after AND r.is_remote) / calls AS remote,
               sumIf(r.adjusted_count, NOT r.is_after AND r.is_remote) / calls_before AS remote_before,
               sumIf(r.adjusted_count * r.duration_us, r.is_after) / calls / 1000 AS felt_ms,
               sumIf(r.adjusted_count * r.duration_us, NOT r.is_after) / calls_before / 1000 AS felt_ms_before,
               avgWeightedIf(ifNull(r.network_us, 0) + served.own_us, r.adjusted_count,
                             r.is_after AND NOT r.failed AND served.trace_id != '') / 1000 AS hop_ms,
               sumIf(r.adjusted_count * r.egress_gb, r.is_after) / calls * 1e6 AS egress,
               sumIf(r.adjusted_count * r.egress_gb, NOT r.is_after) / calls_before * 1e6 AS egress_before,
               dateDiff('millisecond', minIf(r.started_at, r.is_after), maxIf(r.started_at, r.is_after)) / 3.6e6 AS hours
        FROM routed AS r
        LEFT JOIN served ON served.trace_id = r.trace_id AND served.class = r.class
            AND served.destination_cluster = r.destination_cluster
        GROUP BY source_cluster, class
        HAVING calls > 0
    )
SELECT o.source_cluster AS source, o.class AS class, round(o.calls) AS calls, round(o.calls_before) AS calls_before,
       round(100 * o.remote, 1) AS remote_percent, round(100 * o.remote_before, 1) AS remote_percent_before,
       round(o.felt_ms, 3) AS felt_ms, round(o.felt_ms_before, 3) AS felt_ms_before,
       round(o.felt_ms_before - o.felt_ms, 3) AS saved_ms,
       round(o.hop_ms, 3) AS hop_ms, round(p.predicted_hop_ms, 3) AS predicted_hop_ms,
       round(o.egress, 6) AS egress_gb_per_million, round(o.egress_before, 6) AS egress_gb_per_million_before,
       o.egress / 1e6 * o.calls / nullIf(o.hours, 0) * {usd_per_gb:Float64} AS egress_usd_per_hour,
       (o.egress - o.egress_before) / 1e6 * o.calls / nullIf(o.hours, 0) * {usd_per_gb:Float64} AS extra_usd_per_hour
FROM observed AS o
LEFT JOIN predicted AS p ON p.source_cluster = o.source_cluster AND p.class = o.class
ORDER BY source, class
