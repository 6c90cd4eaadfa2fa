-- What would the proposals gain against the routing in force?
-- Use it in shadow mode, to see whether enforcement pays, and later to see what a change is worth.
-- The routing in force is the rules that relays route by, and the nearest cluster where there are
-- no rules. Both sides are predictions of the same model at the same demand. In shadow mode no
-- measurement confirms them yet. One row per application and policy, the largest gain first.
--   application               classes that share no service with others, named after their first
--                             entry service
--   solves                    solves with both sides, with any outcome; last is the newest,
--                             last_outcome its outcome
--   rps                       requests that users send, mean of the solves
--   now_ms, proposed_ms       mean latency of a user's request; saved_ms is the difference
--   now_egress_usd, proposed_egress_usd   US dollars per hour for traffic between clusters
--   now_usd, proposed_usd     the objective in US dollars per hour: waiting time, failures and
--                             egress
--   saved_usd, saved_percent  by how much the rules cost less than the routing in force
-- A policy that keeps weights may cost more than the routing in force. saved_usd is then below 0.
-- Parameters: start, end.
SELECT application, policy,
       count() AS solves,
       max(at) AS last,
       argMax(outcome, at) AS last_outcome,
       round(avg(demand_rps), 3) AS rps,
       round(sum(demand_rps * now_mean_latency_ms) / nullIf(sum(demand_rps), 0), 3) AS now_ms,
       round(sum(demand_rps * mean_latency_ms) / nullIf(sum(demand_rps), 0), 3) AS proposed_ms,
       round(now_ms - proposed_ms, 3) AS saved_ms,
       avg(now_egress_usd_per_hour) AS now_egress_usd,
       avg(egress_usd_per_hour) AS proposed_egress_usd,
       avg(now_objective_usd_per_hour) AS now_usd,
       avg(objective_usd_per_hour) AS proposed_usd,
       now_usd - proposed_usd AS saved_usd,
       round(100 * saved_usd / nullIf(now_usd, 0), 1) AS saved_percent
FROM solves
WHERE at BETWEEN {start:DateTime64(3, 'UTC')} AND {end:DateTime64(3, 'UTC')}
  AND NOT isNaN(objective_usd_per_hour) AND NOT isNaN(now_objective_usd_per_hour)
GROUP BY application, policy
ORDER BY saved_usd DESC, application, policy
