-- What limits on destinations cost (minimum_share, maximum_destinations and whole_classes of the guardrails), relative to the
-- objective without them. It is part of the solution's cost and of its gap. NaN: not known; rows of versions before 0.2.0 have it.
ALTER TABLE solves ADD COLUMN IF NOT EXISTS limits_loss Float64 DEFAULT nan AFTER rounding_loss;
