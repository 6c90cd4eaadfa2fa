-- What each Envoy answered to each version.
CREATE TABLE IF NOT EXISTS acknowledgements
(
    at              DateTime64(3, 'UTC'),
    cluster         LowCardinality(String),
    service         LowCardinality(String),
    envoy           LowCardinality(String),
    version         UInt64,
    type_url        LowCardinality(String),
    outcome         LowCardinality(String),   -- ack or nack
    detail          String
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (cluster, envoy, version, type_url, at)
SETTINGS non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
