"""Compares the contents of ClickHouse with a known truth, row by row and sum by sum."""

import math
from collections.abc import Callable

from clickhouse_driver import Client
from truth import Truth

_CALLS = """SELECT trace_id, span_id, toUnixTimestamp64Micro(started_at), cluster, service, class, source_cluster,
    source_service, duration_us, exclusive_us, request_bytes, failed, adjusted_count FROM calls FINAL"""
_EDGES = """SELECT trace_id, span_id, toUnixTimestamp64Micro(started_at), source_cluster, source_class,
    destination_cluster, class, duration_us, network_us, request_bytes, failed, adjusted_count FROM edges FINAL"""
_LOAD_PARTS = """SELECT toUnixTimestamp(at), cluster, service, class, sum(arrivals), sum(failed), sum(samples),
    sum(exclusive_ms) FROM load_parts FINAL GROUP BY 1, 2, 3, 4"""
_LOAD_1S = """SELECT toUnixTimestamp(at), cluster, service, class, sum(arrivals), sum(failed)
    FROM load_1s GROUP BY 1, 2, 3, 4"""
_EDGE_PARTS = """SELECT toUnixTimestamp(at), source_cluster, source_class, cluster, class, sum(calls), sum(failed),
    sum(request_bytes), sum(samples) FROM edge_parts FINAL GROUP BY 1, 2, 3, 4, 5"""
_NETWORK_PARTS = """SELECT toUnixTimestamp(at), source_cluster, destination_cluster, bucket, sum(calls), sum(time_us)
    FROM network_parts FINAL GROUP BY 1, 2, 3, 4"""

# By table: its query, the number of leading columns that identify a row, and the function that
# computes the expected rows.
Question = tuple[str, int, Callable[[Truth], dict[tuple, tuple]]]
QUESTIONS: dict[str, Question] = {
    "calls": (_CALLS, 2, lambda truth: truth.calls),
    "edges": (_EDGES, 2, lambda truth: truth.edges),
    "load_parts": (_LOAD_PARTS, 4, Truth.load),
    "load_1s": (_LOAD_1S, 4, lambda truth: {key: row[:2] for key, row in truth.load().items()}),
    "edge_parts": (_EDGE_PARTS, 5, Truth.graph),
    "network_parts": (_NETWORK_PARTS, 4, Truth.network),
}


def differences(url: str, truth: Truth, without: str = "") -> dict[str, str]:
    """Returns a description of what is wrong with each table. {} if all tables are correct.

    A table must contain only rows of the truth. Rows with a value that begins with `without` are
    ignored.
    """
    client = Client.from_url(url)
    try:
        found = {}
        for table, (sql, identity, expected) in QUESTIONS.items():
            rows = {
                row[:identity]: row[identity:]
                for row in client.execute(sql)
                if not (without and any(str(value).startswith(without) for value in row))
            }
            if text := _difference(expected(truth), rows):
                found[table] = text
        return found
    finally:
        client.disconnect()


def _difference(expected: dict[tuple, tuple], rows: dict[tuple, tuple]) -> str:
    missing, extra = expected.keys() - rows.keys(), rows.keys() - expected.keys()
    other = [key for key in expected.keys() & rows.keys() if not _equal(expected[key], rows[key])]
    if not (missing or extra or other):
        return ""
    text = (
        f"of {len(expected)} rows {len(missing)} are missing, {len(extra)} too many, {len(other)} different"
    )
    for name, keys in (("missing", missing), ("too many", extra), ("different", other)):
        for key in sorted(keys, key=str)[:2]:
            text += f"\n  {name}: {key} must be {expected.get(key)}, is {rows.get(key)}"
    return text


def _equal(expected: tuple, row: tuple) -> bool:
    """Compares floats to nine digits, because sums of fractions depend on their order."""
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) if isinstance(a, float) else a == b
        for a, b in zip(expected, row, strict=True)
    )
