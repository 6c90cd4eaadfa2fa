-- What the job `classify` saw of a class and thinks of it; a row when that changes and at least every hour.
CREATE TABLE IF NOT EXISTS class_findings
(
    found_at          DateTime64(3, 'UTC'),
    service           LowCardinality(String),
    class             LowCardinality(String),
    verdict           LowCardinality(String),  -- kept, merged, learned, bounded, pinned, flagged, unsure
    reason            String,                  -- in words
    requests          Float64,                 -- adjusted for sampling, in the memory's time
    samples           UInt64,                  -- calls behind the tests
    failed_share      Float64,
    exclusive_p50_ms  Float64,
    exclusive_p99_ms  Float64,
    nearest_class     LowCardinality(String),  -- the class of the same method that is most like it, '' where there is none
    statistic         Float64,                 -- Kolmogorov's, of exclusive times at equal load, against the nearest class
    p_value           Float64,                 -- after the correction for the number of tests
    effect            Float64,                 -- 0..1: largest distance of the two distribution functions, over strata of equal load
    child_statistic   Float64,                 -- calls per request: largest difference in standard errors, over callee classes
    child_p_value     Float64,
    child_effect      Float64,                 -- largest difference of calls per request
    modes             UInt8,                   -- 1 or 2
    separation        Float64,                 -- Ashman's D of two log-normal modes; above 2 they are clearly apart
    bic_gain          Float64,                 -- BIC of one mode minus BIC of two
    mode_low_ms       Float64,
    mode_high_ms      Float64,
    mode_high_share   Float64,
    split_attribute   LowCardinality(String),  -- what would part the modes best, '' where nothing does
    split_value       String,                  -- at which value (a threshold or a name)
    split_explained   Float64                  -- 0..1: share of the modes' entropy that it explains
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(found_at)
ORDER BY (service, class, found_at)
TTL toDateTime(found_at) + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'whole on every node';
