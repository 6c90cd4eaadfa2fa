-- The rules of published rulesets, one row per destination.
CREATE TABLE IF NOT EXISTS rules
(
    at                   DateTime64(3, 'UTC'),
    version              UInt64,
    ruleset_id           String,
    source_cluster       LowCardinality(String),
    source_service       LowCardinality(String),
    class                LowCardinality(String),
    destination_cluster  LowCardinality(String),
    weight               UInt32,              -- of 10 000
    predicted_compute_ms Float64,
    predicted_network_ms Float64,
    reason               String
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (version, source_cluster, class, destination_cluster)
SETTINGS non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
