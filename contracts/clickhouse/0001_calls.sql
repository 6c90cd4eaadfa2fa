-- One row per served request: a server span with its exclusive time and the load it met.
CREATE TABLE IF NOT EXISTS calls
(
    started_at        DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD),
    trace_id          String CODEC(ZSTD),
    span_id           String CODEC(ZSTD),
    cluster           LowCardinality(String),
    service           LowCardinality(String),
    class             LowCardinality(String),  -- 'service METHOD /path/{template}'
    source_cluster    LowCardinality(String),  -- '' for an entry call
    source_service    LowCardinality(String),  -- '' for an entry call
    duration_us       UInt64,
    exclusive_us      UInt64,                  -- duration minus the union of child calls
    in_flight         UInt32,                  -- at arrival, this one included
    arrival_rate      Float64,                 -- per second, over the second before arrival
    request_bytes     UInt64,
    response_bytes    UInt64,
    status            UInt16,
    failed            Bool,
    adjusted_count    Float64,                  -- 1 / sampling probability
    stored_at         DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(started_at)
ORDER BY (service, class, cluster, started_at, trace_id, span_id)
TTL stored_at + INTERVAL 3 DAY
SETTINGS non_replicated_deduplication_window = 10000;
