-- What the routing in force costs at the same demand: rules that relays route by, and the nearest cluster where there are
-- none. Beside mean_latency_ms, egress_usd_per_hour and objective_usd_per_hour it is what the rules in question gain; in
-- shadow mode, what they would gain. NaN: not known, as of rows of versions before 0.2.0.
ALTER TABLE solves
    ADD COLUMN IF NOT EXISTS now_mean_latency_ms Float64 DEFAULT nan AFTER objective_usd_per_hour,
    ADD COLUMN IF NOT EXISTS now_egress_usd_per_hour Float64 DEFAULT nan AFTER now_mean_latency_ms,
    ADD COLUMN IF NOT EXISTS now_objective_usd_per_hour Float64 DEFAULT nan AFTER now_egress_usd_per_hour;
