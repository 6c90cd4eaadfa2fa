-- One row per second, cluster and class: what was offered, served and felt.
CREATE TABLE IF NOT EXISTS load_1s
(
    at              DateTime('UTC'),
    cluster         LowCardinality(String),
    service         LowCardinality(String),
    class           LowCardinality(String),
    arrivals        Float64,                  -- adjusted for sampling
    failed          Float64,
    duration_ms     Float64,                  -- mean
    exclusive_ms    Float64,                  -- mean, of calls that did not fail
    in_flight       Float64,                  -- mean at arrival, of the whole service
    service_rate    Float64,                   -- arrivals per second of the whole service, mean at arrival
    stored_at       DateTime('UTC') DEFAULT now()  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(at)
ORDER BY (service, class, cluster, at)
TTL stored_at + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 10000;
