-- One row per call made: a client span, the class of the call that caused it, and where it went.
CREATE TABLE IF NOT EXISTS edges
(
    started_at          DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD),
    trace_id            String CODEC(ZSTD),
    span_id             String CODEC(ZSTD),
    source_cluster      LowCardinality(String),
    source_service      LowCardinality(String),
    source_class        LowCardinality(String),
    destination_cluster LowCardinality(String),
    destination_service LowCardinality(String),
    class               LowCardinality(String),
    duration_us         UInt64,
    network_us          Nullable(UInt64),       -- NULL when neither header nor server span told
    request_bytes       UInt64,
    response_bytes      UInt64,
    status              UInt16,
    failed              Bool,
    adjusted_count      Float64,
    ruleset_version     UInt64,                  -- 0: the fallback routed it
    stored_at           DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(started_at)
ORDER BY (source_service, class, source_cluster, started_at, trace_id, span_id)
TTL stored_at + INTERVAL 3 DAY
SETTINGS non_replicated_deduplication_window = 10000;
