-- Every step of PAPA: what it tried, what it measured, whether it kept it (SLATE 4.4).
CREATE TABLE IF NOT EXISTS papa_steps
(
    at               DateTime64(3, 'UTC'),
    ruleset_id       String,
    source_cluster   LowCardinality(String),
    class            LowCardinality(String),
    weights_before   Map(String, UInt32),
    weights_after    Map(String, UInt32),
    objective_before Float64,
    objective_after  Float64,
    outcome          LowCardinality(String),  -- kept, rolled_back, converged or superseded
    reason           String
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY at
SETTINGS non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
