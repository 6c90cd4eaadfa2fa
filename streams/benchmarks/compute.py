"""Decoding and exclusive times alone: one process, no Kafka, no ClickHouse. Started by streams.py;
prints JSON.

What is timed is what the job `exclusive` asks of the native module: add, arrivals, close, and
reading every column.
"""

import argparse
import json
import time

import spans
import spillway_native
from spillway_lab.testing.kafka import PARTITIONS

_MINUTE_MS = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=400_000)
    parser.add_argument("--rate", type=float, default=25_000, help="spans per second of log time")
    arguments = parser.parse_args()
    began_us = int(time.time() * 1e6)
    log = spans.Partition(spans.Shop(), 0, began_us, arguments.rate)
    messages = list(log.messages(arguments.spans))
    began = time.process_time()
    rows, hot = _work(messages, began_us // 1000)
    spent = time.process_time() - began
    wanted = log.truth.calls + log.truth.edges
    if rows != wanted:
        raise SystemExit(f"{rows} rows of {wanted} came out")
    print(
        json.dumps({"spans_per_s_core": log.truth.spans / spent, "spans": log.truth.spans, "hot_rows": hot})
    )


def _work(messages: list[spans.Message], began_ms: int) -> tuple[int, int]:
    """Returns the number of rows of calls and edges, and the number of rows of arrivals."""
    engine = spillway_native.Partition(first_offset=0, log_start=True, partitions=PARTITIONS)
    rows = hot = 0
    for offset, message in enumerate(messages):
        at_ms = began_ms + message.at_us // 1000
        if engine.add(message.value, offset, at_ms):
            raise SystemExit("a span was refused")
        hot += _read(engine.arrivals())
        rows += _closed(engine)
    engine.advance(began_ms + messages[-1].at_us // 1000 + _MINUTE_MS)
    return rows + _closed(engine), hot


def _closed(engine: spillway_native.Partition) -> int:
    rows = 0
    while (closed := engine.close()) is not None:
        rows += _read(closed.calls) + _read(closed.edges)
        _read(closed.network)
        _read(closed.spans)
    return rows


def _read(batch: spillway_native.Batch) -> int:
    """Asks for every column's buffer, as the wire formats do. Returns the number of rows."""
    for name in batch.columns:
        batch.column(name)
    return batch.rows


if __name__ == "__main__":
    main()
