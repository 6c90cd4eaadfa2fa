-- Every proposal that reached the publisher, and what became of it.
CREATE TABLE IF NOT EXISTS rulesets
(
    at              DateTime64(3, 'UTC'),
    ruleset_id      String,
    version         UInt64,                   -- 0: refused
    origin          LowCardinality(String),
    policy          LowCardinality(String),
    input_window    String,
    outcome         LowCardinality(String),   -- published or refused
    reason          String
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (at, ruleset_id)
SETTINGS non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
