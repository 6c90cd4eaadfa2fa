-- How far each job has stored what came to each partition of a topic from each partition of otlp_spans:
-- parts up to this sequence are complete, parts beyond it are not to be read at a start.
CREATE TABLE IF NOT EXISTS positions
(
    job             LowCardinality(String),
    topic           LowCardinality(String),
    partition       UInt16,
    source          UInt16,
    sequence        UInt64,
    stored_at       DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(sequence)
ORDER BY (job, topic, partition, source)
SETTINGS non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
