-- Every run of the optimizer, proposed or not.
CREATE TABLE IF NOT EXISTS solves
(
    at                  DateTime64(3, 'UTC'),
    input_window        String,
    ruleset_id          String,               -- '' when nothing was proposed
    policy              LowCardinality(String),
    outcome             LowCardinality(String), -- proposed, renewed, unchanged or refused
    reason              String,
    demand_rps          Float64,
    mean_latency_ms     Float64,
    compute_ms          Float64,
    network_ms          Float64,
    egress_usd_per_hour Float64,
    objective_usd_per_hour Float64,
    relative_gap        Float64,
    duration_ms         Float64
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY at
SETTINGS non_replicated_deduplication_window = 10000;
