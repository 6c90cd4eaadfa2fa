-- Exclusive time by utilisation bucket (0: 0-10 %, ... 9: 90 % and above), one row per
-- window; a curve is fitted to their sums (SLATE 4.2).
CREATE TABLE IF NOT EXISTS buckets
(
    window_start    DateTime('UTC'),
    cluster         LowCardinality(String),
    service         LowCardinality(String),
    class           LowCardinality(String),
    bucket          UInt8,
    samples         UInt64,
    utilisation     Float64,                  -- mean of the samples
    exclusive_ms    Float64,                  -- mean
    exclusive_ms_sd Float64,
    stored_at       DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(window_start)
ORDER BY (service, class, cluster, bucket, window_start)
TTL stored_at + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000;
