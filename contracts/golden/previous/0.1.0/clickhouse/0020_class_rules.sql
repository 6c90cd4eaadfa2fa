-- Rules that make traffic classes of syntactic path templates; append only, the history says what was in force when.
-- In force at t: per (service, method, template, operator's or job's) the newest row with effective_from <= t.
CREATE TABLE IF NOT EXISTS class_rules
(
    written_at     DateTime64(3, 'UTC'),
    effective_from DateTime64(3, 'UTC'),       -- a minute after written_at at the earliest: every worker has it in time
    service        LowCardinality(String),
    method         LowCardinality(String),     -- '': any
    template       String,                     -- what it applies to; a segment '*' is any one segment; '' with kind bounded: all that no rule names
    becomes        String,                     -- template of the class; '/other'; '' for retired and unpinned
    kind           LowCardinality(String),     -- pinned, merged, learned, bounded; retired ends a job's rule, unpinned an operator's
    author         LowCardinality(String),     -- 'classify' or who pinned it
    reason         String,
    statistic      Float64 DEFAULT 0,          -- of the test that decided, 0 where none did
    p_value        Float64 DEFAULT 1,
    effect         Float64 DEFAULT 0,          -- size of the difference that the test saw, 0..1
    samples        UInt64 DEFAULT 0            -- calls that the decision rests on
)
ENGINE = ReplacingMergeTree(written_at)
ORDER BY (service, method, template, effective_from, kind, becomes)
SETTINGS non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
