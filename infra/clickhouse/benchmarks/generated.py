"""SELECTs with which ClickHouse generates the rows of a mesh under load.

The mesh has 8 services, 40 classes, 3 clusters and traces of 8 calls, over one hour. Every value is
a hash of the row's number.
"""

_CALLS = """
SELECT
    toDateTime64('2026-03-01 00:00:00', 6, 'UTC')
        + toIntervalMicrosecond(intDiv(number, 8) * {gap_us} + hop * 900 + sipHash64(number, 1) % 4000) AS started_at,
    lower(hex(sipHash128(intDiv(number, 8), 2))) AS trace_id,
    leftPad(lower(hex(sipHash64(number, 3))), 16, '0') AS span_id,
    number % 8 AS hop,
    if(sipHash64(number, 4) % 10 = 0, sipHash64(number, 5), sipHash64(intDiv(number, 8), 6)) % 3 AS place,
    concat('cluster-', toString(place)) AS cluster,
    concat('service-', toString(hop)) AS service,
    concat(service, ' GET /resource/', toString(sipHash64(intDiv(number, 8), 7) % 5), '/{{id}}') AS class,
    if(hop = 0, '', concat('cluster-', toString(sipHash64(intDiv(number, 8), 6) % 3))) AS source_cluster,
    if(hop = 0, '', concat('service-', toString(hop - 1))) AS source_service,
    toUInt64(exp(7.5 + 0.6 * (sipHash64(number, 8) % 10000 / 2500 - 2) + (7 - hop) * 0.25)) AS duration_us,
    toUInt64(duration_us * (0.2 + (sipHash64(number, 9) % 800) / 1000)) AS exclusive_us,
    toUInt32(1 + sipHash64(number, 10) % (2 + hop)) AS in_flight,
    toFloat64(80 + sipHash64(number, 11) % 40) AS arrival_rate,
    toUInt32(1 + sipHash64(number, 12) % 3) AS class_in_flight,
    toFloat64(10 + sipHash64(number, 13) % 20) AS class_arrival_rate,
    toUInt64(if(sipHash64(number, 14) % 3 = 0, 100 + sipHash64(number, 15) % 900, 0)) AS request_bytes,
    toUInt64(exp(6 + (sipHash64(number, 16) % 1000) / 250)) AS response_bytes,
    toUInt16(if(sipHash64(number, 17) % 200 = 0, 503, 200)) AS status,
    status = 503 AS failed,
    toFloat64(if(sipHash64(intDiv(number, 8), 18) % 4 = 0, 10, 1)) AS adjusted_count,
    toUInt32(15) AS trace_spans,
    toDateTime(now() - 3600 + intDiv(number, 8) * {gap_us} / 1e6) AS stored_at
FROM numbers({first}, {rows})"""
_EDGES = """
SELECT started_at, trace_id, leftPad(lower(hex(sipHash64(span_id))), 16, '0') AS span_id, source_cluster,
       source_service, concat(source_service, substring(class, 10)) AS source_class, cluster AS destination_cluster,
       service AS destination_service, class, duration_us + 600 AS duration_us,
       toUInt64(500 + sipHash64(span_id, 2) % 300 + 20000 * (cluster != source_cluster)) AS network_known,
       if(sipHash64(span_id, 1) % 20 = 0, NULL, network_known) AS network_us,
       request_bytes, response_bytes, status, failed, adjusted_count,
       toUInt64(1 + intDiv(toUnixTimestamp(started_at) % 3600, 60)) AS ruleset_version, trace_spans,
       toUInt32(2 * hop) AS source_call, stored_at
FROM ({calls}) WHERE hop > 0"""


def calls(first: int, rows: int, total: int) -> str:
    """Some of `total` rows, in the order in which they happened."""
    return _CALLS.format(first=first, rows=rows, gap_us=3_600_000_000 * 8 // total)


def edges(first: int, rows: int, total: int) -> str:
    return _EDGES.format(calls=calls(first, rows, total))


def load_parts(first: int, rows: int, total: int) -> str:
    """Parts of batches of half a second, as `curves` folds calls."""
    good = "toFloat64(NOT failed) * adjusted_count"
    return f"""
SELECT toDateTime(started_at) AS at, cluster, service, class, xxHash64(service) % 4 AS partition, hop % 4 AS source,
       bitShiftLeft(toUInt64((toUnixTimestamp64Milli(toDateTime64(started_at, 3)) + 2000) / 500), 10) AS sequence,
       sum(adjusted_count) AS arrivals, sumIf(adjusted_count, failed) AS failures, toFloat64(countIf(NOT failed)) AS samples,
       sum({good}) AS ok, sum(exclusive_us / 1000 * {good}) AS exclusive_ms,
       sum(exclusive_us * exclusive_us / 1e6 * {good}) AS exclusive_sq_ms2, sum(adjusted_count) AS stamped,
       sum(arrival_rate * adjusted_count) AS rate, sum(adjusted_count) AS class_stamped,
       sum(class_arrival_rate * adjusted_count) AS class_rate, max(stored_at) AS stored
FROM ({calls(first, rows, total)})
GROUP BY at, cluster, service, class, partition, source, sequence"""
