-- Sums over the calls made of one batch that began in one second, per edge of the call graph: the sum
-- over a second's parts (FINAL) is the second. Counts and bytes are adjusted for sampling.
CREATE TABLE IF NOT EXISTS edge_parts
(
    at              DateTime('UTC') CODEC(DoubleDelta, ZSTD),
    source_cluster  LowCardinality(String),
    source_service  LowCardinality(String),
    source_class    LowCardinality(String),
    cluster         LowCardinality(String),   -- where the call went
    service         LowCardinality(String),
    class           LowCardinality(String),
    partition       UInt16 CODEC(T64, LZ4),  -- of the topic that the rows came in, with `source` and
    source          UInt16 CODEC(T64, LZ4),  -- partition of otlp_spans that the calls came from, and
    sequence        UInt64 CODEC(Delta, ZSTD),  -- its batch, the part's identity: a repeat replaces it
    calls           Float64 CODEC(ZSTD),
    failed          Float64 CODEC(ZSTD),
    request_bytes   Float64 CODEC(ZSTD),
    response_bytes  Float64 CODEC(ZSTD),
    samples         Float64 CODEC(ZSTD),  -- spans, not adjusted
    callers         Float64 DEFAULT calls CODEC(ZSTD),  -- traces in which the source class made this call, however often
    stored_at       DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD)  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(at)
ORDER BY (source_service, source_class, class, source_cluster, cluster, at, partition, source, sequence)
TTL stored_at + INTERVAL 2 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'sharded by source_service';
