-- Network times of calls between clusters as a logarithmic histogram per second and batch: bucket i
-- counts the calls that took 1.04^(i-1) to 1.04^i microseconds there and back.
CREATE TABLE IF NOT EXISTS network_parts
(
    at                  DateTime('UTC') CODEC(DoubleDelta, ZSTD),
    source_cluster      LowCardinality(String),
    destination_cluster LowCardinality(String),
    bucket              Int16 CODEC(T64, LZ4),
    partition           UInt16 CODEC(T64, LZ4),  -- of the topic that the rows came in, with `source` and
    source              UInt16 CODEC(T64, LZ4),  -- partition of otlp_spans that the calls came from, and
    sequence            UInt64 CODEC(Delta, ZSTD),  -- its batch, the part's identity: a repeat replaces it
    calls               Float64 CODEC(ZSTD),  -- adjusted for sampling
    time_us             Float64 CODEC(ZSTD),  -- sum
    stored_at           DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD)  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(at)
ORDER BY (source_cluster, destination_cluster, at, bucket, partition, source, sequence)
TTL stored_at + INTERVAL 8 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'sharded by source_cluster';
