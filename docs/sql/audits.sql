-- Was the solver right?
-- The optimizer audits the solution of one solve at a time, with another solver and more time. Use
-- this when SpillwayOptimizerAuditWrong fires, and to see how far rules can be from the optimum.
-- One row per application and policy, the largest difference first.
--   application        classes that share no service with others, named after their first entry
--                      service
--   audits, last       number of audits, and the time of the newest audited solve
--   wrong              audits that refuted the gap of the solve
--   better             audits that found a routing that is worth a proposal, within that gap
--   difference_max     by how much the best known routing cost less than the audited one, relative;
--                      the largest
--   stated_gap_max     largest gap that audited solves had stated
--   proven_gap_p50, proven_gap_max   gap of the best known routing that audits have proven
--   seconds_max        longest time that a proof took
--   worst_reason       the verdict of the audit with the largest difference, worst_at its solve
-- Audits without a proof have no row; the metric spillway_optimizer_audits_total counts them.
-- Parameters: start, end.
SELECT application, policy,
       count() AS audits,
       max(at) AS last,
       countIf(startsWith(reason, 'wrong:')) AS wrong,
       countIf(startsWith(reason, 'better:')) AS better,
       max(audit_difference) AS difference_max,
       maxOrNullIf(audited_gap, NOT isNaN(audited_gap)) AS stated_gap_max,
       quantile(0.5)(relative_gap) AS proven_gap_p50,
       max(relative_gap) AS proven_gap_max,
       round(max(duration_ms) / 1000, 1) AS seconds_max,
       argMax(reason, audit_difference) AS worst_reason,
       argMax(at, audit_difference) AS worst_at
FROM solves
WHERE at BETWEEN {start:DateTime64(3, 'UTC')} AND {end:DateTime64(3, 'UTC')}
  AND outcome = 'audited'
GROUP BY application, policy
ORDER BY difference_max DESC, application, policy
