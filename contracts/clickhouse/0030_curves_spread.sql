-- How far single calls of a class are from its curve: the standard deviation of one call's exclusive time at utilisation
-- u is sd_a_ms / (1 - u) + sd_b_ms, over the same calls as the curve. ab_correlation: of the errors of a_ms and b_ms,
-- from -1 to 1; a curve that was not fitted has none. NaN: not known; rows of versions before 0.2.0 have it.
ALTER TABLE curves
    ADD COLUMN IF NOT EXISTS sd_a_ms Float64 DEFAULT nan AFTER b_se_ms,
    ADD COLUMN IF NOT EXISTS sd_b_ms Float64 DEFAULT nan AFTER sd_a_ms,
    ADD COLUMN IF NOT EXISTS ab_correlation Float64 DEFAULT nan AFTER sd_b_ms;
