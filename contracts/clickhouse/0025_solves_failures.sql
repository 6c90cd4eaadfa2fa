-- What failures count in the objective, which is the sum of compute, network, egress and failures. An outcome may also be
-- rolled_back: what was observed after a change was clearly worse than before it and than predicted.
ALTER TABLE solves ADD COLUMN IF NOT EXISTS failure_usd_per_hour Float64 DEFAULT 0 AFTER egress_usd_per_hour;
