-- The states of each proposal on its way into force. One row per proposal, state and version; a row that is written
-- again, because a publisher was interrupted, replaces the first.
CREATE TABLE IF NOT EXISTS transitions
(
    at              DateTime64(3, 'UTC'),
    ruleset_id      String,
    version         UInt64,                   -- 0: it has none yet, or never gets one
    state           LowCardinality(String),   -- proposed, checked, refused, canary, published, acknowledged, kept or rolled_back
    origin          LowCardinality(String),   -- who proposed it
    reason          String
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (ruleset_id, version, state)
SETTINGS non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
