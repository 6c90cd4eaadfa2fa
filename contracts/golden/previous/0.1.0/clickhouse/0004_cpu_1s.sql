-- Share of its CPU limit that a service used in a cluster, as its pods report it.
CREATE TABLE IF NOT EXISTS cpu_1s
(
    at              DateTime('UTC'),
    cluster         LowCardinality(String),
    service         LowCardinality(String),
    pod             LowCardinality(String),
    utilisation     Float64,                   -- 0..1
    stored_at       DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(at)
ORDER BY (service, cluster, pod, at)
TTL stored_at + INTERVAL 3 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'sharded by service';
