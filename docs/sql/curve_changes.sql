-- Which curves changed, when, by how much and why?
-- Use it when the optimizer changed its mind: a curve is the reason it gives. One row per version of a curve
-- that differs from the version before it; the first version of a class has no change.
--   phase       prior (guessed), shift (moved up or down), retrain (fitted anew)
--   at_50       milliseconds that it predicts at half load, L(0.5) = 2a + b; at_90 the same at 90 %
--   change_50   relative to the version before; -0.1 is 10 % faster
--   u_min, u_max   load that it was fitted on: beyond u_max it is a guess
-- Parameters: start, end.
SELECT fitted_at, class, phase, reason, round(a_ms, 3) AS a, round(b_ms, 3) AS b,
       round(a_ms / 0.5 + b_ms, 3) AS at_50, round(a_ms / 0.1 + b_ms, 3) AS at_90,
       round(at_50 / nullIf(before_50, 0) - 1, 4) AS change_50, samples, round(u_min, 2) AS from_u, round(u_max, 2) AS to_u
FROM
(
    SELECT *, row_number() OVER history AS version,
           lagInFrame(a_ms / 0.5 + b_ms, 1, 0) OVER history AS before_50,
           lagInFrame(phase, 1, '') OVER history AS phase_before
    FROM curves
    WINDOW history AS (PARTITION BY service, class ORDER BY fitted_at ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
)
WHERE fitted_at BETWEEN {start:DateTime64(6, 'UTC')} AND {end:DateTime64(6, 'UTC')}
  AND (version = 1 OR phase != phase_before OR abs(change_50) > 0.001)
ORDER BY fitted_at, class
