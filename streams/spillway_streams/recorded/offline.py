"""Recorded traces to the model that the optimizer takes (contracts/golden/3_model.json). Pure.

No server is needed. The computation is that of the jobs: the native engine makes calls and edges
from spans, then load, curves, capacities, call graph and network times are fitted as online. The
difference is in the boards: they hold means over the whole recording, not over the last seconds.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry
from spillway_native import Closed, Partition

from spillway_streams.batches import columns, native_batch
from spillway_streams.batches.columns import Columns, Schema
from spillway_streams.batches.parts import fold
from spillway_streams.boards import boards
from spillway_streams.graph import callgraph, network
from spillway_streams.graph.callgraph import CallGraph
from spillway_streams.load.cpu import CpuTable
from spillway_streams.load.load import LoadTable
from spillway_streams.model import modelling
from spillway_streams.model.modelling import Modeller, Options
from spillway_streams.process.counters import Counters

HORIZON_MS = 200_000  # this long after the last message, everything is due
# Recordings further apart than this count as separate, and the time between them is left out.
APART_S = 60
_MAX_SPANS = 500
_MEMORY_S, _MAX_KEYS = 1_000_000, 100_000


@dataclass(frozen=True)
class Recording:
    """Calls and edges (columns.CALLS, columns.EDGES), and counts of unusable spans by reason."""

    calls: Columns
    edges: Columns
    odd: Mapping[str, int]


def ends_ms(request: ExportTraceServiceRequest) -> int:
    """Returns when the last of the request's spans ended, Unix ms."""
    spans = (s for r in request.resource_spans for c in r.scope_spans for s in c.spans)
    return max(span.end_time_unix_nano for span in spans) // 1_000_000


def close(requests: Iterable[ExportTraceServiceRequest], counters: Counters) -> Iterator[Closed]:
    """Yields what the native engine makes of one recording, tick by tick.

    `requests`: whole traces, in order of time.
    """
    partition, at_ms = Partition(first_offset=0, log_start=True, partitions=1), 0
    for offset, request in enumerate(requests):
        at_ms = max(at_ms, ends_ms(request))
        for reason, _, spans in partition.add(request.SerializeToString(), offset, timestamp_ms=at_ms):
            counters.add(f"refused: {reason}", spans)
    partition.advance(at_ms + HORIZON_MS)
    while output := partition.close():
        yield output
    for reason, count in partition.counters().items():
        counters.add(reason, count)


def rows(schema: Schema, batches: Iterable[Any]) -> Columns:
    """Returns the columns of all batches of the native engine."""
    read = (native_batch.as_python(schema, native_batch.read(schema, batch)) for batch in batches)
    return columns.concat(schema, read)


def record(traces: Iterable[ExportTraceServiceRequest]) -> Recording:
    """Returns the calls and edges of traces. Each request must be one trace."""
    counters = Counters()
    closed: list[Closed] = []
    for stretch in _stretches(traces):
        closed += close(_batches(stretch), counters)
    return Recording(
        rows(columns.CALLS, (output.calls for output in closed)),
        rows(columns.EDGES, (output.edges for output in closed)),
        counters.snapshot(),
    )


def _stretches(
    traces: Iterable[ExportTraceServiceRequest],
) -> Iterator[list[ExportTraceServiceRequest]]:
    """Yields the traces in order of time, cut where nothing was recorded.

    Without the cuts, the engine would process every tick in between.
    """
    stretch: list[ExportTraceServiceRequest] = []
    last_ms = 0
    for at_ms, trace in sorted(((ends_ms(trace), trace) for trace in traces), key=lambda pair: pair[0]):
        if stretch and at_ms - last_ms > APART_S * 1000:
            yield stretch
            stretch = []
        stretch.append(trace)
        last_ms = at_ms
    if stretch:
        yield stretch


def _batches(traces: Iterable[ExportTraceServiceRequest]) -> Iterator[ExportTraceServiceRequest]:
    """Yields messages as a collector sends them. A trace is never split."""
    batch, size = ExportTraceServiceRequest(), 0
    for trace in traces:
        spans = sum(len(c.spans) for r in trace.resource_spans for c in r.scope_spans)
        if size and size + spans > _MAX_SPANS:
            yield batch
            batch, size = ExportTraceServiceRequest(), 0
        batch.MergeFrom(trace)
        size += spans
    if size:
        yield batch


def recorded_s(calls: Columns) -> float:
    """Seconds from the first call to the last, without the time between separate recordings."""
    at = np.unique(calls["started_at"] // 1_000_000)
    gaps = np.diff(at)
    return float(at[-1] - at[0] + 1 - (gaps[gaps > APART_S] - 1).sum())


def document(recording: Recording, options: Options) -> dict[str, Any]:
    """Returns the model in the shape of contracts/golden/3_model.json.

    `recording` must have at least one call.
    """
    calls, edges, counters = recording.calls, recording.edges, Counters()
    table = LoadTable(_MEMORY_S, counters, _MAX_KEYS)
    table.add(calls)
    graph = CallGraph(_MEMORY_S, _MAX_KEYS, counters)
    graph.requests.add(callgraph.request_parts(calls))
    graph.edges.add(callgraph.edge_parts(edges))
    graph.network.add(callgraph.network_parts(network.of_edges(edges)))
    first, end = (int(f(calls["started_at"])) // 1_000_000 for f in (np.min, np.max))
    end += 1
    curves, capacities = Modeller(options).fit(table, CpuTable(1), end * 1000)
    pairs = graph.network_times(first, end, end * 1000)
    load, demand = mean_boards(calls, float(end))
    return {
        "curves": named(modelling.CURVES, curves),
        "capacities": named(modelling.CAPACITIES, capacities),
        "call_ratios": named(callgraph.CALL_RATIOS, graph.call_ratios(first, end, end * 1000)),
        "network_times": named(callgraph.NETWORK_TIMES, pairs),
        "load": entries(load),
        "demand": entries(demand),
        "network": {pair: json.loads(e.to_json()) for pair, e in callgraph.network_board(pairs, end).items()},
    }


def mean_boards(
    calls: Columns, at: float
) -> tuple[dict[str, dict[str, LoadBoardEntry]], dict[str, dict[str, DemandEntry]]]:
    """Returns load and demand boards at Unix second `at`, as means over the whole recording."""
    seconds, arrivals = recorded_s(calls), boards.arrivals_of(calls)
    exclusive_ms = np.where(calls["failed"], 0.0, calls["adjusted_count"]) * calls["exclusive_us"] / 1000
    names = ("calls", "failed", "ok", "duration_ok_ms", "stamped", "in_flight")
    by = (arrivals["cluster"], arrivals["class"], arrivals["entry"])
    summed = fold(
        np.zeros(len(exclusive_ms), np.int64), by, [*(arrivals[name] for name in names), exclusive_ms]
    )
    every: dict[tuple[str, str], np.ndarray] = {}
    demand: dict[str, dict[str, DemandEntry]] = {}
    for code, sums in zip(summed.key.tolist(), summed.sums, strict=True):
        cluster, class_id, entry = summed.keys[code]
        every[cluster, class_id] = every.get((cluster, class_id), 0) + sums
        if entry:
            total, failed, ok, duration = sums[:4]
            demand.setdefault(cluster, {})[class_id] = DemandEntry(
                at, float(total / seconds), float(failed / total), _mean(duration, ok)
            )
    load: dict[str, dict[str, LoadBoardEntry]] = {}
    for (cluster, class_id), (total, failed, ok, duration, stamped, in_flight, exclusive) in every.items():
        load.setdefault(cluster, {})[class_id] = LoadBoardEntry(
            at, float(total / seconds), float(failed / total), _mean(duration, ok), _mean(exclusive, ok),
            _mean(in_flight, stamped), None,
        )  # fmt: skip
    return load, demand


def _mean(total: float, count: float) -> float:
    return float(total / count) if count > 0 else 0.0


def named(columns_of: tuple[str, ...], found: list[tuple]) -> list[dict[str, Any]]:
    """Returns the rows as objects by column name.

    The first column is a time in ms and becomes text. Real numbers are rounded to nine digits. NaN,
    which is unknown, becomes None.
    """
    result = [dict(zip(columns_of, row, strict=True)) for row in found]
    return [
        {k: _plain(v) for k, v in row.items()} | {columns_of[0]: time_text(row[columns_of[0]], 3)}
        for row in result
    ]


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(f"{value:.9g}")


def time_text(units: int, digits: int) -> str:
    """Formats a time as ClickHouse writes it. `units`: of 10^-digits s, since the epoch."""
    seconds, rest = divmod(units, 10**digits)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:0{digits}d}"


def entries(board: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns board entries as the JSON values that Redis holds."""
    return {c: {name: json.loads(entry.to_json()) for name, entry in by.items()} for c, by in board.items()}
