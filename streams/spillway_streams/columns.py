"""Batches of rows as numpy columns, and their two wires: Arrow IPC and ClickHouse.

A `Columns` value is a dict from column name to a one-dimensional array; all have one length.
Column names are those of the ClickHouse tables (contracts/clickhouse). In memory:

    kind    array                       Arrow               ClickHouse
    time    int64, microseconds UTC     timestamp[us, UTC]  DateTime64(6)
    str     object of str               string              LowCardinality(String), String
    u64     int64 >= 0                  uint64              UInt16 ... UInt64
    opt     int64, -1 for none          uint64, null        Nullable(UInt64)
    f64     float64                     double              Float64
    bool    bool                        bool                Bool
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spillway_streams import StreamsError

Columns = dict[str, np.ndarray]
Schema = Mapping[str, str]


class ColumnsError(StreamsError):
    """A batch whose columns are not those of its schema."""


CALLS: Schema = {
    "started_at": "time",
    "trace_id": "str",
    "span_id": "str",
    "cluster": "str",
    "service": "str",
    "class": "str",
    "source_cluster": "str",
    "source_service": "str",
    "duration_us": "u64",
    "exclusive_us": "u64",
    "in_flight": "u64",
    "arrival_rate": "f64",
    "request_bytes": "u64",
    "response_bytes": "u64",
    "status": "u64",
    "failed": "bool",
    "adjusted_count": "f64",
}

EDGES: Schema = {
    "started_at": "time",
    "trace_id": "str",
    "span_id": "str",
    "source_cluster": "str",
    "source_service": "str",
    "source_class": "str",
    "destination_cluster": "str",
    "destination_service": "str",
    "class": "str",
    "duration_us": "u64",
    "network_us": "opt",
    "request_bytes": "u64",
    "response_bytes": "u64",
    "status": "u64",
    "failed": "bool",
    "adjusted_count": "f64",
    "ruleset_version": "u64",
}

_DTYPES = {"time": "int64", "str": object, "u64": "int64", "opt": "int64", "f64": "float64", "bool": "bool"}
_ARROW = {
    "time": pa.timestamp("us", tz="UTC"),
    "str": pa.string(),
    "u64": pa.uint64(),
    "opt": pa.uint64(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
}


def length(batch: Columns) -> int:
    return len(next(iter(batch.values()))) if batch else 0


def from_rows(schema: Schema, rows: Sequence[tuple[Any, ...]]) -> Columns:
    """Rows in the schema's order -> columns; no rows give empty columns."""
    values = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return {
        name: np.array(column, dtype=_DTYPES[kind])
        for (name, kind), column in zip(schema.items(), values, strict=True)
    }


def concat(schema: Schema, batches: Iterable[Columns]) -> Columns:
    parts = list(batches)
    if not parts:
        return from_rows(schema, [])
    return {name: np.concatenate([part[name] for part in parts]) for name in schema}


def take(batch: Columns, which: np.ndarray) -> Columns:
    """The rows that `which` (indices or a mask) names."""
    return {name: column[which] for name, column in batch.items()}


def sort(batch: Columns, *names: str) -> Columns:
    """Rows ordered by the named columns, the first one being the most significant."""
    return take(batch, np.lexsort([batch[name] for name in reversed(names)]))


def to_ipc(schema: Schema, batch: Columns) -> bytes:
    """One Arrow IPC stream holding one record batch, LZ4 compressed."""
    arrays = []
    for name, kind in schema.items():
        mask = batch[name] < 0 if kind == "opt" else None
        values = np.where(mask, 0, batch[name]) if kind == "opt" else batch[name]
        if kind in ("opt", "u64"):
            values = values.astype("uint64")
        arrays.append(pa.array(values, type=_ARROW[kind], mask=mask))
    arrow_schema = pa.schema(
        [pa.field(name, _ARROW[kind], nullable=kind == "opt") for name, kind in schema.items()]
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, arrow_schema, options=options) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=arrow_schema))
    return sink.getvalue().to_pybytes()


def from_ipc(schema: Schema, payload: bytes) -> Columns:
    """The inverse of to_ipc; ColumnsError says which column is missing or of another type."""
    try:
        table = pa.ipc.open_stream(payload).read_all()
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        raise ColumnsError(f"not an Arrow IPC stream: {error}") from error
    batch: Columns = {}
    for name, kind in schema.items():
        if name not in table.column_names:
            raise ColumnsError(f"column {name}: missing; columns: {', '.join(table.column_names)}")
        column = table.column(name)
        if column.type != _ARROW[kind]:
            raise ColumnsError(f"column {name}: type {column.type}, must be {_ARROW[kind]}")
        if kind == "time":
            column = column.cast(pa.int64())
        elif kind == "opt":
            column = column.cast(pa.int64()).fill_null(-1)
        if column.null_count:
            raise ColumnsError(f"column {name}: {column.null_count} nulls, none allowed")
        batch[name] = column.to_numpy().astype(_DTYPES[kind])
    return batch


def to_clickhouse(schema: Schema, batch: Columns) -> list[list[Any]]:
    """Column lists for clickhouse-driver's columnar insert; times stay whole microseconds."""
    lists = []
    for name, kind in schema.items():
        values = batch[name].tolist()
        lists.append([None if value < 0 else value for value in values] if kind == "opt" else values)
    return lists
