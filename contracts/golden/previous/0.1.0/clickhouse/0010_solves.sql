-- Every run of the optimizer, proposed or not. What is not known is NaN, '' or empty.
CREATE TABLE IF NOT EXISTS solves
(
    at                  DateTime64(3, 'UTC'),
    input_window        String,                 -- of the telemetry: start and end, Unix ms
    ruleset_id          String,                 -- '' when nothing was proposed
    policy              LowCardinality(String),
    trigger             LowCardinality(String), -- start, period, load, placement, guardrails or policy
    outcome             LowCardinality(String), -- proposed, renewed, unchanged or refused
    reason              String,                 -- of the outcome; of a refusal: what is wrong with the input or the rules
    demand_rps          Float64,
    -- Of the rules that were proposed, renewed or kept, at this demand.
    mean_latency_ms     Float64,                -- compute_ms + network_ms, mean per request
    compute_ms          Float64,
    network_ms          Float64,
    compute_usd_per_hour Float64,               -- the objective is the sum of these three
    network_usd_per_hour Float64,
    egress_usd_per_hour Float64,
    objective_usd_per_hour Float64,
    -- Of the solution that was found, whether it was proposed or not.
    solution_usd_per_hour Float64,
    bound_usd_per_hour  Float64,                -- no routing can cost less
    relative_gap        Float64,                -- (solution - bound) / solution
    merging_loss        Float64,                -- relative: caller classes that share a route have one split
    rounding_loss       Float64,                -- relative: weights are integers
    binding             Array(String),          -- constraints and capacities that hold the objective back
    notes               Array(String),          -- overload, limits that cannot be kept, what was assumed of the input
    duration_ms         Float64                 -- of the solver
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY at
SETTINGS non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
