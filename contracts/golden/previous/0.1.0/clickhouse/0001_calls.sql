-- One row per served request: a server span with its exclusive time and the load it met.
CREATE TABLE IF NOT EXISTS calls
(
    started_at        DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    trace_id          String CODEC(ZSTD),
    span_id           String CODEC(ZSTD),
    cluster           LowCardinality(String),
    service           LowCardinality(String),
    class             LowCardinality(String),  -- 'service METHOD /path/{template}'
    source_cluster    LowCardinality(String),  -- '' for an entry call
    source_service    LowCardinality(String),  -- '' for an entry call
    duration_us       UInt64 CODEC(T64, LZ4),
    exclusive_us      UInt64 CODEC(T64, LZ4),  -- duration minus the union of child calls
    in_flight         UInt32 CODEC(T64, LZ4),  -- at arrival, this one included
    arrival_rate      Float64 CODEC(ZSTD),  -- per second, over the second before arrival
    class_in_flight   UInt32 DEFAULT 0 CODEC(T64, LZ4),  -- the same two of the call's class alone; 0: not stamped
    class_arrival_rate Float64 DEFAULT 0 CODEC(ZSTD),
    request_bytes     UInt64 CODEC(T64, LZ4),
    response_bytes    UInt64 CODEC(T64, LZ4),
    status            UInt16,
    failed            Bool,
    adjusted_count    Float64 CODEC(ZSTD),  -- 1 / sampling probability
    trace_spans       UInt32 DEFAULT 0,         -- spans of its trace when this row was computed: the fuller view wins
    stored_at         DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD),  -- TTL counts from here: replayed traces are old
    INDEX by_trace trace_id TYPE bloom_filter(0.01),
    INDEX by_class class TYPE set(0)
)
ENGINE = ReplacingMergeTree(trace_spans)
PARTITION BY toDate(started_at)
ORDER BY (service, cluster, started_at, trace_id, span_id)
TTL stored_at + INTERVAL 3 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'sharded by trace_id';
