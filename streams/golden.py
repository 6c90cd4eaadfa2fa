"""Derives the golden links 2_calls.json and 3_model.json from 1_spans.json with this box's code.

Usage: python streams/golden.py [--check]
"""

import argparse
import importlib.util
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from spillway_native import Partition
from spillway_streams.batches import columns, native_batch
from spillway_streams.boards import boards
from spillway_streams.boards.boards import HotTable, Window
from spillway_streams.graph import callgraph, network
from spillway_streams.graph.callgraph import CallGraph
from spillway_streams.load.cpu import CpuTable, Point
from spillway_streams.load.load import LoadTable
from spillway_streams.model import modelling
from spillway_streams.model.modelling import Modeller, Options
from spillway_streams.process.counters import Counters
from spillway_streams.recorded import offline
from spillway_streams.recorded.offline import entries, named, time_text
from spillway_streams.recorded.otlp import otlp_request

GOLDEN = Path(__file__).resolve().parents[1] / "contracts" / "golden"
GENERATOR = GOLDEN.parent / "generate" / "golden_spans.py"
BOARD_S, GRAPH_S = 5, 30
READ_MS = 1_767_225_640_000  # Unix ms, soon after the spans


def calls_document(spans: dict) -> dict:
    """Returns the calls and edges of a document of spans."""
    partition = Partition(first_offset=0, log_start=True, partitions=1)
    rejected = partition.add(otlp_request(spans).SerializeToString(), 0, timestamp_ms=READ_MS)
    partition.advance(READ_MS + offline.HORIZON_MS)
    closed = partition.close()
    odd = partition.counters()
    if rejected or odd:
        raise SystemExit(f"1_spans.json: {rejected} {odd}: nothing may be odd here")
    batches = (("calls", columns.CALLS, closed.calls), ("edges", columns.EDGES, closed.edges))
    found = {}
    for name, schema, batch in batches:
        rows = native_batch.as_python(schema, native_batch.read(schema, batch))
        found[name] = _rows(schema, columns.sort(rows, "started_at", "trace_id", "span_id"))
    return found


def _rows(schema: columns.Schema, batch: columns.Columns) -> list[dict]:
    """Returns rows as ClickHouse returns them in JSON: times as text, NULL for absent values."""
    lists = columns.to_clickhouse(schema, batch)
    rows = [dict(zip(schema, row, strict=True)) for row in zip(*lists, strict=True)]
    for row in rows:
        row["started_at"] = time_text(row["started_at"], 6)
    return rows


def batch(schema: columns.Schema, rows: list[dict]) -> columns.Columns:
    """Returns the columns of rows; the inverse of _rows."""
    values = []
    for row in rows:
        at = datetime.fromisoformat(row["started_at"]).replace(tzinfo=UTC)
        micros = int(at.timestamp()) * 1_000_000 + at.microsecond
        absent = {name: -1 for name, kind in schema.items() if kind == "opt" and row[name] is None}
        values.append(tuple((row | absent | {"started_at": micros})[name] for name in schema))
    return columns.from_rows(schema, values)


def model_document(document: dict) -> dict:
    """Returns the model and the boards that follow from a document of calls and edges."""
    calls, edges = batch(columns.CALLS, document["calls"]), batch(columns.EDGES, document["edges"])
    counters, cpu = Counters(), CpuTable(3600)
    table = LoadTable(3600, counters)
    table.add(calls)
    graph = CallGraph(600, 1000, counters)
    graph.requests.add(callgraph.request_parts(calls))
    graph.edges.add(callgraph.edge_parts(edges))
    graph.network.add(callgraph.network_parts(network.of_edges(edges)))
    end = int(calls["started_at"].max()) // 1_000_000 + 1
    hot = HotTable(Window(BOARD_S, settle=0), 1000, counters)
    hot.add(boards.arrivals_of(calls), end)
    times = dict.fromkeys(hot.times.clusters(), float(end))
    exclusive_ms = table.exclusive_ms(end - BOARD_S, end)
    # This small chain has only one sample per second and cluster.
    curves, capacities = Modeller(Options(min_samples=1)).fit(table, reported_cpu(), end * 1000)
    pairs = graph.network_times(end - GRAPH_S, end, end * 1000)
    return {
        "curves": named(modelling.CURVES, curves),
        "capacities": named(modelling.CAPACITIES, capacities),
        "call_ratios": named(callgraph.CALL_RATIOS, graph.call_ratios(end - GRAPH_S, end, end * 1000)),
        "network_times": named(callgraph.NETWORK_TIMES, pairs),
        "load": entries(boards.load_board(hot, exclusive_ms, cpu, times)),
        "demand": entries(boards.demand_board(hot, times)),
        "network": {pair: json.loads(e.to_json()) for pair, e in callgraph.network_board(pairs, end).items()},
    }


def reported_cpu() -> CpuTable:
    """Returns the CPU use that the pods of the generator's services would have reported.

    One span a second alone does not show a capacity.
    """
    spec = importlib.util.spec_from_file_location("golden_spans", GENERATOR)
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    cpu = CpuTable(3600)
    for second in range(source.SECONDS):
        for cluster in source.RATES:
            for service, capacity in source.CAPACITY_RPS.items():
                # Requests that are refused at once cost nothing.
                refused = service == source.SERVICES[-1] and (cluster, second) in source.FAILED
                use = 0.0 if refused else source.rate(cluster, second) / capacity
                cpu.add([Point(source.START_S + second, cluster, service, f"{service}-0", use)])
    return cpu


def documents(folder: Path) -> dict[str, dict]:
    """Returns the derived links by file name, each computed from the previous one."""
    calls = calls_document(json.loads((folder / "1_spans.json").read_text()))
    return {"2_calls.json": calls, "3_model.json": model_document(json.loads(json.dumps(calls)))}


def _text(document: dict) -> str:
    """Formats a document: two levels of keys, then one row per line."""
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
