-- What the routing in force costs at the same demand: the rules that relays route by, and the nearest cluster where there
-- are none. The difference to mean_latency_ms, egress_usd_per_hour and objective_usd_per_hour is what the solve's rules
-- gain, and in shadow mode what they would gain. NaN: not known; rows of versions before 0.2.0 have it.
ALTER TABLE solves
    ADD COLUMN IF NOT EXISTS now_mean_latency_ms Float64 DEFAULT nan AFTER objective_usd_per_hour,
    ADD COLUMN IF NOT EXISTS now_egress_usd_per_hour Float64 DEFAULT nan AFTER now_mean_latency_ms,
    ADD COLUMN IF NOT EXISTS now_objective_usd_per_hour Float64 DEFAULT nan AFTER now_egress_usd_per_hour;
