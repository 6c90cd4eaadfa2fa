-- One row per call made: a client span, the class of the call that caused it, and where it went.
CREATE TABLE IF NOT EXISTS edges
(
    started_at          DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    trace_id            String CODEC(ZSTD),
    span_id             String CODEC(ZSTD),
    source_cluster      LowCardinality(String),
    source_service      LowCardinality(String),
    source_class        LowCardinality(String),
    destination_cluster LowCardinality(String),
    destination_service LowCardinality(String),
    class               LowCardinality(String),
    duration_us         UInt64 CODEC(T64, LZ4),
    network_us          Nullable(UInt64),       -- NULL when neither header nor server span told
    request_bytes       UInt64 CODEC(T64, LZ4),
    response_bytes      UInt64 CODEC(T64, LZ4),
    status              UInt16,
    failed              Bool,
    adjusted_count      Float64 CODEC(ZSTD),
    ruleset_version     UInt64 CODEC(DoubleDelta, ZSTD),  -- 0: the fallback routed it
    trace_spans         UInt32 DEFAULT 0,        -- spans of its trace when this row was computed: the fuller view wins
    stored_at           DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD),  -- TTL counts from here: replayed traces are old
    INDEX by_trace trace_id TYPE bloom_filter(0.01)
)
ENGINE = ReplacingMergeTree(trace_spans)
PARTITION BY toDate(started_at)
ORDER BY (source_service, source_cluster, started_at, trace_id, span_id)
TTL stored_at + INTERVAL 3 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'sharded by trace_id';
