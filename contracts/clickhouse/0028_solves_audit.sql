-- An outcome may also be audited: a row about an earlier solve, with its time, policy and application. Its trigger is
-- audit. Its solution, bound, gap and duration are those of the reference solver, which started from the audited routing.
-- The new columns are about the audited solve, and NaN in rows of any other outcome.
ALTER TABLE solves
    ADD COLUMN IF NOT EXISTS audited_usd_per_hour Float64 DEFAULT nan AFTER duration_ms, -- with the penalties of solvers
    ADD COLUMN IF NOT EXISTS audited_gap Float64 DEFAULT nan AFTER audited_usd_per_hour, -- relative_gap of that solve
    -- By how much the best known routing costs less, with the same penalties, relative to the audited cost without them.
    ADD COLUMN IF NOT EXISTS audit_difference Float64 DEFAULT nan AFTER audited_gap;
