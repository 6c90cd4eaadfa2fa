-- What does each capacity rest on, and which evidence contradicts it?
-- Use it when a service saturates below its capacity, or gets less load than it could take. One row
-- per service and cluster. The largest contradiction comes first.
--   capacity_rps  the capacity in force, of all pods; it was measured as per_pod_rps on pods (NULL:
--                 unknown)
--   evidence      the decisive evidence: cpu, latency, refusals, queue (completed requests while a
--                 queue grew) or assumed (from the weakest pod of another cluster)
--   cpu_rps, latency_rps, limit_rps   the capacity by each evidence alone (limit: refusals or
--                 queue), NULL without it; ..._error is its standard error, relative to it
--   changed_at    when the capacity last changed. Older evidence does not count. NULL: no change is
--                 stored
--   disagreement  the highest of these values divided by capacity_rps, or 1 where their errors
--                 explain the difference. At 2, CPU has room for twice the load that another limit
--                 allows
SELECT service, cluster,
       round(newest.1, 1) AS capacity_rps,
       nullIf(newest.2, 0) AS pods,
       round(newest.1 / nullIf(newest.2, 0), 1) AS per_pod_rps,
       newest.3 AS evidence,
       nullIf(round(newest.4, 1), 0) AS cpu_rps, round(newest.5 / nullIf(newest.4, 0), 3) AS cpu_error,
       nullIf(round(newest.6, 1), 0) AS latency_rps, round(newest.7 / nullIf(newest.6, 0), 3) AS latency_error,
       nullIf(round(newest.8, 1), 0) AS limit_rps, round(newest.9 / nullIf(newest.8, 0), 3) AS limit_error,
       round(newest.10, 2) AS disagreement,
       if(newest.13 = toDateTime(0, 'UTC'), NULL, newest.13) AS changed_at,
       newest.11 AS reason,
       newest.12 AS measured_at
FROM
(
    SELECT service, cluster,
           argMax((capacity_rps, pods, evidence, cpu_rps, cpu_se, latency_rps, latency_se, limit_rps, limit_se, disagreement,
                   reason, measured_at, changed_at), measured_at) AS newest
    FROM capacities GROUP BY service, cluster
)
ORDER BY disagreement DESC, service, cluster
