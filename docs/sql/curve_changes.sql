-- Which curves changed, when, by how much and why?
-- Use it when the optimizer changed its decision and gives a curve as the reason. One row per
-- version of a curve that differs from the version before it, or leaves out a cluster that the
-- version before did not, or the reverse. The first version of a class has no change.
--   phase         prior (guessed), shift (moved up or down), retrain (fitted again)
--   at_50         predicted milliseconds at half load, L(0.5) = 2a + b; at_90 is the same at 90 %
--   change_50     relative to the version before; -0.1 is 10 % faster
--   from_u, to_u  load that the curve was fitted on; above to_u it is a guess
-- Parameters: start, end.
SELECT fitted_at, class, phase, reason, round(a_ms, 3) AS a, round(b_ms, 3) AS b,
       round(a_ms / 0.5 + b_ms, 3) AS at_50, round(a_ms / 0.1 + b_ms, 3) AS at_90,
       round(at_50 / nullIf(before_50, 0) - 1, 4) AS change_50, samples, round(u_min, 2) AS from_u, round(u_max, 2) AS to_u
FROM
(
    SELECT *, row_number() OVER history AS version,
           lagInFrame(a_ms / 0.5 + b_ms, 1, 0) OVER history AS before_50,
           lagInFrame(phase, 1, '') OVER history AS phase_before,
           position(reason, 'as others have not changed') > 0 AS apart,
           lagInFrame(apart, 1, 0) OVER history AS apart_before
    FROM curves
    WINDOW history AS (PARTITION BY service, class ORDER BY fitted_at ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
)
WHERE fitted_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
  AND (version = 1 OR phase != phase_before OR abs(change_50) > 0.001 OR apart != apart_before)
ORDER BY fitted_at, class
