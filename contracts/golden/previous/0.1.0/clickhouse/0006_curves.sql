-- Every version of every load/latency curve: L(u) = a_ms / (1 - u) + b_ms.
CREATE TABLE IF NOT EXISTS curves
(
    fitted_at       DateTime64(3, 'UTC'),
    input_window    String,
    service         LowCardinality(String),
    class           LowCardinality(String),
    a_ms            Float64,
    b_ms            Float64,
    a_se_ms         Float64,                  -- standard errors
    b_se_ms         Float64,
    norm_weight     Float64,                  -- cost of one request in units of the service's baseline class
    u_min           Float64,                  -- range seen
    u_max           Float64,
    samples         UInt64,
    rmse_ms         Float64,
    phase           LowCardinality(String),   -- prior, shift or retrain
    reason          String,
    stored_at       DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(fitted_at)
ORDER BY (service, class, fitted_at)
TTL stored_at + INTERVAL 1 YEAR
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
