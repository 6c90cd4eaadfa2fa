-- Exclusive time by utilisation bucket (0: 0-10 %, ... 9: 90 % and above), as states that add up: sums
-- over a minute's calls. A window has a row for each of the ten buckets, so that computing it again, with
-- another capacity perhaps, leaves nothing of before. A curve is fitted to their sums (SLATE 4.2).
CREATE TABLE IF NOT EXISTS buckets
(
    window_start     DateTime('UTC'),
    cluster          LowCardinality(String),
    service          LowCardinality(String),
    class            LowCardinality(String),
    bucket           UInt8,
    samples          SimpleAggregateFunction(sum, UInt64),   -- spans, not adjusted; the next three are sums over them
    utilisation_sum  SimpleAggregateFunction(sum, Float64) CODEC(ZSTD),
    exclusive_sum_ms SimpleAggregateFunction(sum, Float64) CODEC(ZSTD),
    exclusive_sq_ms2 SimpleAggregateFunction(sum, Float64) CODEC(ZSTD),
    utilisation      Float64 ALIAS if(samples = 0, 0, utilisation_sum / samples),   -- means
    exclusive_ms     Float64 ALIAS if(samples = 0, 0, exclusive_sum_ms / samples),
    exclusive_ms_sd  Float64 ALIAS if(samples = 0, 0, sqrt(greatest(exclusive_sq_ms2 / samples - exclusive_ms * exclusive_ms, 0))),
    stored_at        DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(window_start)
ORDER BY (service, class, cluster, bucket, window_start)
TTL stored_at + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'sharded by service';
