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
    samples           UInt64,
    probability       Float64 DEFAULT least(calls_per_request, 1), -- share of the requests that call at all: at
                                              -- least that when a trace holds several of source_class
    success_rate      Float64 DEFAULT 1,       -- share of the calls that did not fail
    stored_at         DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = MergeTree
PARTITION BY toDate(window_end)
ORDER BY (source_class, class, window_end)
TTL stored_at + INTERVAL 8 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
