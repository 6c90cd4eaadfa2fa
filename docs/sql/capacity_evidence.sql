-- What does each capacity rest on, and which evidence contradicts it?
-- Use it when a service saturates although it has room by its capacity, or is kept from load that it could take. One
-- row per service and cluster, the largest contradiction first.
--   capacity_rps       in force, of all pods; per_pod_rps and pods (NULL: unknown) are what it was measured as
--   evidence           the decisive one: cpu, latency, refusals, queue (completed while a queue grew) or assumed
--                      (of another cluster's weakest pod)
--   cpu_rps, latency_rps, limit_rps   what each says by itself (limit: refusals or queue), NULL where it says nothing,
--                      and ..._error, its standard error relative to it
--   changed_at         since when it is this; evidence from before does not count. NULL: no change is remembered
--   disagreement       the highest of these over capacity_rps where their errors do not explain it, else 1: CPU has
--                      room for so many times what something else allows
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
