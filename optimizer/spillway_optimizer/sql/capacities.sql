-- The newest capacity of every service in every cluster as of a time, of those that can be. What was measured there goes
-- before what is assumed from another cluster since: a load that tells nothing now has not changed it. error: the standard error
-- of the decisive evidence over the capacity, NaN: unknown. settled: the fewest
-- pods counted in the last four minutes, of which one may lie ahead of the clock; 0: unknown, or nothing was counted before
-- them.
SELECT toUnixTimestamp64Milli(newest) / 1000 AS measured_at, newest_window AS input_window, cluster, service,
       newest_rps AS capacity_rps, newest_pods AS pods, newest_evidence AS evidence, settled,
       newest_error AS error
FROM (
    SELECT cluster, service, argMax(capacities.measured_at, (capacities.evidence != 'assumed', capacities.measured_at)) AS newest,
           argMax(capacities.input_window, (capacities.evidence != 'assumed', capacities.measured_at)) AS newest_window,
           argMax(capacities.capacity_rps, (capacities.evidence != 'assumed', capacities.measured_at)) AS newest_rps,
           argMax(capacities.pods, (capacities.evidence != 'assumed', capacities.measured_at)) AS newest_pods,
           argMax(capacities.evidence, (capacities.evidence != 'assumed', capacities.measured_at)) AS newest_evidence,
           argMax(multiIf(capacities.evidence = 'cpu', capacities.cpu_se, capacities.evidence = 'latency', capacities.latency_se,
                          capacities.evidence IN ('refusals', 'queue'), capacities.limit_se, 0) / capacities.capacity_rps,
                  (capacities.evidence != 'assumed', capacities.measured_at)) AS share_of_newest,
           if(share_of_newest > 0 AND share_of_newest < 1e3, share_of_newest, nan) AS newest_error,
           if(min(capacities.measured_at) > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 4 MINUTE, 0,
              minIf(capacities.pods, capacities.pods > 0
                  AND capacities.measured_at > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 4 MINUTE)) AS settled
    FROM capacities
    WHERE capacities.measured_at <= toDateTime64(%(end)s, 3, 'UTC') AND capacities.measured_at > toDateTime64(%(end)s, 3, 'UTC') - INTERVAL 1 HOUR
      AND capacity_rps >= 0 AND capacity_rps < 1e9
    GROUP BY cluster, service
)
