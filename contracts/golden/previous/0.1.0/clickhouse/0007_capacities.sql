-- Requests per second (of the baseline class) at which a service in a cluster saturates.
CREATE TABLE IF NOT EXISTS capacities
(
    measured_at     DateTime64(3, 'UTC'),
    input_window    String,
    cluster         LowCardinality(String),
    service         LowCardinality(String),
    capacity_rps    Float64,
    source          LowCardinality(String),   -- cpu or curve
    reason          String,
    stored_at       DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(measured_at)
ORDER BY (service, cluster, measured_at)
TTL stored_at + INTERVAL 1 YEAR
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
