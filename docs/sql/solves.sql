-- What did the optimizer decide, why, and what held it back?
-- Use it when rules do not change although they should, change too often, or cost more than
-- expected. One row per application, policy, outcome and trigger, the most frequent first.
--   application     classes that share no service with others, named after their first entry
--                   service; '': the mesh
--   solves          number of solves of that application, policy, outcome and trigger
--   last            time of the newest; last_reason is its reason; for a refusal, the fault in the
--                   input
--   ms_p50, ms_max  duration of the solver
--   gap_max         worst proven (solution - bound) / solution; empty: no bound was proven
--   usd_per_hour    mean objective of the rules, and its parts for compute, network, egress and
--                   failures
--   lost_max        worst loss from merging routes and from integer weights, relative to the
--                   objective
--   limits_max      worst loss from limits on destinations, relative to the objective without them
--   binding         constraints and capacities that limited the objective, the most frequent first
--   notes           the most frequent notes: overload, limits that could not be kept, assumptions
-- Audits of solves are not in here: see audits.sql.
-- Parameters: start, end.
SELECT application, policy, outcome, trigger,
       count() AS solves,
       max(at) AS last,
       argMax(reason, at) AS last_reason,
       round(quantileIf(0.5)(duration_ms, NOT isNaN(duration_ms)), 1) AS ms_p50,
       round(maxIf(duration_ms, NOT isNaN(duration_ms)), 1) AS ms_max,
       maxOrNullIf(relative_gap, NOT isNaN(relative_gap)) AS gap_max,
       avgOrNullIf(objective_usd_per_hour, NOT isNaN(objective_usd_per_hour)) AS usd_per_hour,
       avgOrNullIf(compute_usd_per_hour, NOT isNaN(compute_usd_per_hour)) AS compute_usd_per_hour,
       avgOrNullIf(network_usd_per_hour, NOT isNaN(network_usd_per_hour)) AS network_usd_per_hour,
       avgOrNullIf(egress_usd_per_hour, NOT isNaN(egress_usd_per_hour)) AS egress_usd_per_hour,
       avgOrNullIf(failure_usd_per_hour, NOT isNaN(failure_usd_per_hour)) AS failure_usd_per_hour,
       maxOrNullIf(merging_loss + rounding_loss, NOT isNaN(merging_loss)) AS lost_max,
       maxOrNullIf(limits_loss, NOT isNaN(limits_loss)) AS limits_max,
       topKArray(5)(binding) AS binding,
       topKArray(5)(notes) AS notes
FROM solves
WHERE at BETWEEN {start:DateTime64(3, 'UTC')} AND {end:DateTime64(3, 'UTC')}
  AND outcome != 'audited'
GROUP BY application, policy, outcome, trigger
ORDER BY solves DESC, application, policy, outcome, trigger
