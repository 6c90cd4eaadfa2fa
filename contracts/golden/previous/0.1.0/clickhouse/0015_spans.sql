-- Raw spans of a sample of traces, whole traces by trace id, kept for hours: to look into one trace.
CREATE TABLE IF NOT EXISTS spans
(
    started_at      DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    trace_id        String CODEC(ZSTD),
    span_id         String CODEC(ZSTD),
    parent_id       String CODEC(ZSTD),       -- '' for a root
    kind            LowCardinality(String),   -- server, client, producer, consumer or internal
    name            LowCardinality(String),
    cluster         LowCardinality(String),
    service         LowCardinality(String),
    class           LowCardinality(String),   -- '' for internal spans
    duration_us     UInt64 CODEC(T64, LZ4),
    status          UInt16,
    failed          Bool,
    stored_at       DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD)  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toStartOfInterval(started_at, INTERVAL 6 HOUR)
ORDER BY (trace_id, started_at, span_id, kind)
TTL stored_at + INTERVAL 6 HOUR
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'sharded by trace_id';
