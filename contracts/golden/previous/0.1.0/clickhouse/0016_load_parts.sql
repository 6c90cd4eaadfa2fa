-- Sums over the calls of one batch that began in one second, per cluster and class: the sum over a
-- second's parts (FINAL) is the second, to the span. Counts are adjusted for sampling unless said otherwise.
CREATE TABLE IF NOT EXISTS load_parts
(
    at              DateTime('UTC') CODEC(DoubleDelta, ZSTD),
    cluster         LowCardinality(String),
    service         LowCardinality(String),
    class           LowCardinality(String),
    partition       UInt16 CODEC(T64, LZ4),  -- of the topic that the rows came in, with `source` and
    source          UInt16 CODEC(T64, LZ4),  -- partition of otlp_spans that the calls came from, and
    sequence        UInt64 CODEC(Delta, ZSTD),  -- its batch, the part's identity: a repeat replaces it
    arrivals        Float64 CODEC(ZSTD),
    failed          Float64 CODEC(ZSTD),
    samples         Float64 CODEC(ZSTD),  -- spans of calls that did not fail, not adjusted
    ok              Float64 CODEC(ZSTD),  -- the same, adjusted
    exclusive_ms    Float64 CODEC(ZSTD),  -- sums over these: of exclusive times,
    exclusive_sq_ms2 Float64 CODEC(ZSTD),  -- and of their squares
    stamped         Float64 CODEC(ZSTD),  -- calls that carry the load of the service at their arrival
    rate            Float64 CODEC(ZSTD),  -- the sum over these
    class_stamped   Float64 CODEC(ZSTD),  -- calls that carry the load of their class at their arrival
    class_rate      Float64 CODEC(ZSTD),  -- the sum over these
    stored_at       DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD)  -- TTL counts from here: replayed traces are old
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(at)
ORDER BY (service, class, cluster, at, partition, source, sequence)
TTL stored_at + INTERVAL 3 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
COMMENT 'sharded by service';

-- The same per second: what was offered, served and felt. A second that is asked for soon after it passed may
-- still grow.
CREATE VIEW IF NOT EXISTS load_1s AS
SELECT
    p.at AS at, p.cluster AS cluster, p.service AS service, p.class AS class,
    sum(p.arrivals) AS arrivals,              -- adjusted for sampling
    sum(p.failed) AS failed,
    if(sum(p.ok) > 0, sum(p.exclusive_ms) / sum(p.ok), 0) AS exclusive_ms,            -- mean, of calls that did not fail
    if(sum(p.stamped) > 0, sum(p.rate) / sum(p.stamped), 0) AS service_rate,          -- arrivals per second of the whole service, mean at arrival
    max(p.stored_at) AS stored_at
FROM load_parts AS p FINAL
GROUP BY at, cluster, service, class;
