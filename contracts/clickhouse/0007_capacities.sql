-- Requests per second (of the baseline class) at which a service in a cluster saturates.
CREATE TABLE IF NOT EXISTS capacities
(
    measured_at     DateTime64(3, 'UTC'),
    input_window    String,
    cluster         LowCardinality(String),
    service         LowCardinality(String),
    capacity_rps    Float64,
    source          LowCardinality(String),   -- cpu or curve
    reason          String
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(measured_at)
ORDER BY (service, cluster, measured_at)
SETTINGS non_replicated_deduplication_window = 10000;
