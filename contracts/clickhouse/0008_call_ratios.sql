-- The call graph: calls of `class` that one request of `source_class` makes.
CREATE TABLE IF NOT EXISTS call_ratios
(
    window_end        DateTime64(3, 'UTC'),
    input_window      String,
    source_class      LowCardinality(String),
    source_service    LowCardinality(String),
    class             LowCardinality(String),
    service           LowCardinality(String),
    calls_per_request Float64,
    request_bytes     Float64,                -- mean
    response_bytes    Float64,                -- mean
    samples           UInt64
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(window_end)
ORDER BY (source_class, class, window_end)
SETTINGS non_replicated_deduplication_window = 10000;
