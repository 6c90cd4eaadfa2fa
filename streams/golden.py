"""Derives the golden links 2_calls.json and 3_model.json from 1_spans.json with this box's code.

Usage: python streams/golden.py [--check]
"""

import argparse
import base64
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_streams import boards, callgraph, columns, modelling, otlp
from spillway_streams.callgraph import CallGraph
from spillway_streams.classify import Templates
from spillway_streams.counters import Counters
from spillway_streams.cpu import CpuTable
from spillway_streams.exclusive import calls_and_edges
from spillway_streams.load import LoadTable
from spillway_streams.modelling import Modeller, Options

GOLDEN = Path(__file__).resolve().parents[1] / "contracts" / "golden"
BOARD_S, GRAPH_S = 5, 30
_IDS = {"traceId", "spanId", "parentSpanId"}


def payload(document: dict) -> bytes:
    """OTLP/JSON writes ids as hex, protobuf's own JSON as base64."""

    def rewrite(value):
        if isinstance(value, dict):
            return {k: _base64(v) if k in _IDS else rewrite(v) for k, v in value.items()}
        return [rewrite(item) for item in value] if isinstance(value, list) else value

    return json_format.ParseDict(rewrite(document), ExportTraceServiceRequest()).SerializeToString()


def _base64(hex_id: str) -> str:
    return base64.b64encode(bytes.fromhex(hex_id)).decode()


def calls_document(spans: dict) -> dict:
    counters = Counters()
    decoded = otlp.decode(payload(spans), 2**62, counters)
    traces: dict[str, list] = {}
    for span in decoded.spans:
        traces.setdefault(span.trace_id, []).append(span)
    calls, edges = calls_and_edges(list(traces.values()), Templates(counters), counters)
    if decoded.rejected or counters.snapshot():
        raise SystemExit(
            f"1_spans.json: {list(decoded.rejected)} {counters.snapshot()}: nothing may be odd here"
        )
    return {"calls": _rows(columns.CALLS, calls), "edges": _rows(columns.EDGES, edges)}


def _rows(schema: columns.Schema, batch: columns.Columns) -> list[dict]:
    """Rows as ClickHouse returns them in JSON: times as text, NULL for what is absent."""
    lists = columns.to_clickhouse(schema, batch)
    rows = [dict(zip(schema, row, strict=True)) for row in zip(*lists, strict=True)]
    for row in rows:
        row["started_at"] = _time(row["started_at"], 6)
    return rows


def _time(units: int, digits: int) -> str:
    seconds, rest = divmod(units, 10**digits)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:0{digits}d}"


def batch(schema: columns.Schema, rows: list[dict]) -> columns.Columns:
    """The inverse of _rows."""
    values = []
    for row in rows:
        at = datetime.fromisoformat(row["started_at"]).replace(tzinfo=UTC)
        micros = int(at.timestamp()) * 1_000_000 + at.microsecond
        absent = {name: -1 for name, kind in schema.items() if kind == "opt" and row[name] is None}
        values.append(tuple((row | absent | {"started_at": micros})[name] for name in schema))
    return columns.from_rows(schema, values)


def model_document(document: dict) -> dict:
    calls, edges = batch(columns.CALLS, document["calls"]), batch(columns.EDGES, document["edges"])
    counters, cpu = Counters(), CpuTable(3600)
    table = LoadTable(3600, counters)
    table.add(calls)
    graph = CallGraph(600, 1000, counters)
    graph.add_calls(calls)
    graph.add_edges(edges)
    end = int(calls["started_at"].max()) // 1_000_000 + 1
    # One sample per second and cluster is all that this small chain has.
    curves, capacities = Modeller(Options(min_samples=1)).fit(table, cpu, end * 1000)
    pairs = graph.network_times(end - GRAPH_S, end, end * 1000)
    return {
        "curves": _named(modelling.CURVES, curves),
        "capacities": _named(modelling.CAPACITIES, capacities),
        "call_ratios": _named(callgraph.CALL_RATIOS, graph.call_ratios(end - GRAPH_S, end, end * 1000)),
        "network_times": _named(callgraph.NETWORK_TIMES, pairs),
        "load": _entries(boards.load_board(table, cpu, end - BOARD_S, end)),
        "demand": _entries(graph.demand(end - BOARD_S, end)),
        "network": {pair: json.loads(e.to_json()) for pair, e in callgraph.network_board(pairs, end).items()},
    }


def _named(names: tuple[str, ...], rows: list[tuple]) -> list[dict]:
    """Rows by column name; the first column is a time in ms, real numbers keep nine digits."""
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [{k: float(f"{v:.9g}") if isinstance(v, float) else v for k, v in row.items()}
            | {names[0]: _time(row[names[0]], 3)} for row in found]  # fmt: skip


def _entries(board: dict) -> dict:
    return {c: {name: json.loads(entry.to_json()) for name, entry in by.items()} for c, by in board.items()}


def documents(folder: Path) -> dict[str, dict]:
    """The derived links by file name, each from the one before."""
    calls = calls_document(json.loads((folder / "1_spans.json").read_text()))
    return {"2_calls.json": calls, "3_model.json": model_document(json.loads(json.dumps(calls)))}


def _text(document: dict) -> str:
    """Two levels of keys, then one row per line."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list):
            inner = ",\n".join(json.dumps(row) for row in value)
            parts.append(f"{json.dumps(name)}: [\n{inner}\n]")
        else:
            inner = ",\n".join(f"{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items())
            parts.append(f"{json.dumps(name)}: {{\n{inner}\n}}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    check = parser.parse_args().check
    stale = False
    for name, document in documents(GOLDEN).items():
        text = _text(document)
        target = GOLDEN / name
        if not target.exists() or target.read_text() != text:
            stale = True
            print(f"{'stale' if check else 'wrote'}: {name}", file=sys.stderr)
            if not check:
                target.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
