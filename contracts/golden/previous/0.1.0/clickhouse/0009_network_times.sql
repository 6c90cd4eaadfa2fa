-- Round-trip network time between clusters, measured on calls.
CREATE TABLE IF NOT EXISTS network_times
(
    window_end          DateTime64(3, 'UTC'),
    source_cluster      LowCardinality(String),
    destination_cluster LowCardinality(String),
    mean_ms             Float64,
    p50_ms              Float64,
    p99_ms              Float64,
    samples             UInt64,
    stored_at           DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = MergeTree
PARTITION BY toDate(window_end)
ORDER BY (source_cluster, destination_cluster, window_end)
TTL stored_at + INTERVAL 8 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
