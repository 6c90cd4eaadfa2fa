"""Batches of rows as columns, and their two wire formats: Arrow IPC and ClickHouse.

A `Columns` value is a dict from column name to a one-dimensional array. All arrays have the same
length. The columns of each row are those of contracts/rows.yaml. `from_ipc` returns
these arrays:

    kind    array                       Arrow                        ClickHouse
    time    int64, microseconds UTC     timestamp[us, UTC]           DateTime64(6)
    id      object of str               string                       String, hex of one width
    str     Strings (codes, values)     dictionary<int32, string>    LowCardinality(String)
    u64     int64 >= 0                  uint64                       UInt16 ... UInt64
    opt     int64, -1 for none          uint64, null                 Nullable(UInt64)
    i64     int64                       int64                        Int16, DateTime (Unix seconds)
    f64     float64                     double                       Float64
    bool    bool                        bool                         Bool

Text is grouped without a Python object per row:

    only = ("started_at", "service", "adjusted_count")
    batch = columns.from_ipc(columns.CALLS, payload, only=only)
    service = batch["service"]
    weights = batch["adjusted_count"]
    sums = np.bincount(service.codes, weights=weights, minlength=len(service.values))
    by_name = dict(zip(service.values, sums))
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from spillway_contracts.rows import ADDED, ARRIVALS, CALLS, EDGES, NETWORK, SPANS

from spillway_streams import StreamsError
from spillway_streams.batches.arrays import Bools, Ints
from spillway_streams.batches.strings import Strings

Columns = dict[str, Any]
Schema = Mapping[str, str]


__all__ = ["ARRIVALS", "CALLS", "EDGES", "NETWORK", "SPANS"]


class ColumnsError(StreamsError):
    """A batch whose columns are not those of its schema."""


_DTYPES: dict[str, str | type] = {
    "time": "int64", "id": object, "u64": "int64", "opt": "int64", "i64": "int64", "f64": "float64", "bool": "bool",
}  # fmt: skip
_TEXT = pa.dictionary(pa.int32(), pa.string())
ARROW = {
    "time": pa.timestamp("us", tz="UTC"),
    "id": pa.string(),
    "str": _TEXT,
    "u64": pa.uint64(),
    "opt": pa.uint64(),
    "i64": pa.int64(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
}
# Compress in the caller's thread. For every batch size that jobs send, Arrow's thread pool takes
# longer and costs 25 context switches.
_IPC = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def length(batch: Columns) -> int:
    """Returns the number of rows."""
    return len(next(iter(batch.values()))) if batch else 0


def from_rows(schema: Schema, rows: Sequence[tuple[Any, ...]]) -> Columns:
    """Turns rows in the schema's order into columns. No rows give empty columns."""
    values = [*zip(*rows, strict=True)] if rows else [()] * len(schema)
    return {
        name: Strings.of(column) if kind == "str" else np.array(column, dtype=_DTYPES[kind])
        for (name, kind), column in zip(schema.items(), values, strict=True)
    }


def concat(schema: Schema, batches: Iterable[Columns]) -> Columns:
    """Joins batches of the schema into one. No batches give empty columns."""
    parts = list(batches)
    if not parts:
        return from_rows(schema, [])
    return {
        name: (Strings.concat if kind == "str" else np.concatenate)([part[name] for part in parts])
        for name, kind in schema.items()
    }


def take(batch: Columns, which: Ints | Bools) -> Columns:
    """Returns the rows that `which` selects (indices or a mask)."""
    return {name: column[which] for name, column in batch.items()}


def sort(batch: Columns, *names: str) -> Columns:
    """Returns the rows ordered by the named columns, the first being the most significant."""
    return take(batch, np.lexsort([np.asarray(batch[name]) for name in reversed(names)]))


def arrow_schema(schema: Schema) -> pa.Schema:
    """Returns the Arrow schema. Only columns of kind `opt` are nullable."""
    return pa.schema([pa.field(name, ARROW[kind], nullable=kind == "opt") for name, kind in schema.items()])


def to_ipc(schema: Schema, batch: Columns) -> bytes:
    """Returns one Arrow IPC stream with one record batch, LZ4 compressed."""
    arrays = [to_arrow(kind, batch[name]) for name, kind in schema.items()]
    return write(pa.record_batch(arrays, schema=arrow_schema(schema)))


def write(batch: pa.RecordBatch) -> bytes:
    """Returns a record batch as an Arrow IPC stream, LZ4 compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_IPC) as writer:
        writer.write_batch(batch)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def to_arrow(kind: str, column: Any) -> pa.Array:
    """Returns an Arrow array made from the column's own memory.

    pyarrow's general conversion costs more, and imports pandas where it is installed.
    """
    if kind == "str":
        used = column.compact()
        return pa.DictionaryArray.from_arrays(_buffered(pa.int32(), used.codes), texts(used.values))
    if kind == "id":
        return texts(column.tolist())
    if kind == "bool":
        bits = pa.py_buffer(np.packbits(column, bitorder="little"))
        return pa.Array.from_buffers(ARROW[kind], len(column), [None, bits])
    if kind == "opt":
        absent = column < 0
        valid = pa.py_buffer(np.packbits(~absent, bitorder="little"))
        return _buffered(ARROW[kind], np.where(absent, 0, column), valid)
    return _buffered(ARROW[kind], column)


def texts(values: Sequence[str]) -> pa.Array:
    """Returns strings as an Arrow array."""
    encoded = [value.encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    buffers = pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))
    return pa.StringArray.from_buffers(len(encoded), *buffers)


def _buffered(kind: pa.DataType, column: NDArray[Any], valid: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(column), [valid, pa.py_buffer(np.ascontiguousarray(column))])


def from_ipc(schema: Schema, payload: bytes, only: Collection[str] | None = None) -> Columns:
    """Returns the columns of an Arrow IPC stream; the inverse of to_ipc.

    With `only`, returns just these columns; the others cost nothing. Text may also come as plain
    strings. Columns that the previous version does not write are 0 where they are missing. Raises
    ColumnsError that says which column is missing or of another type, or what else is wrong with
    the payload.
    """
    wanted = {name: kind for name, kind in schema.items() if only is None or name in only}
    try:
        with pa.ipc.open_stream(payload) as stream:
            present = stream.schema.names
        included = [i for i, name in enumerate(present) if name in wanted]
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=included)
        table = pa.ipc.open_stream(payload, options=options).read_all()
        # Offsets and indices of a payload are not trusted: reading past the end of a buffer would
        # crash the process.
        table.validate(full=True)
        table = table.unify_dictionaries().combine_chunks()
        return {name: _from_arrow(name, kind, table) for name, kind in wanted.items()}
    except ColumnsError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OSError, EOFError, MemoryError) as error:
        raise ColumnsError(f"not an Arrow IPC stream: {error}") from error


def _from_arrow(name: str, kind: str, table: pa.Table) -> Any:
    times = table.column_names.count(name)
    if not times and name in ADDED:
        return np.zeros(len(table), _DTYPES[kind])
    if times != 1:
        raise ColumnsError(
            f"column {name}: there {times} times; must be once; columns: {', '.join(table.column_names)}"
        )
    column = table.column(name)
    if kind == "str" and pa.types.is_string(column.type):
        column = column.dictionary_encode()
    if column.type != ARROW[kind]:
        raise ColumnsError(f"column {name}: type {column.type}; must be {ARROW[kind]}")
    if column.null_count and kind != "opt":
        raise ColumnsError(f"column {name}: {column.null_count} nulls, none allowed")
    if kind == "str":
        return _strings(name, column)
    if kind == "time":
        column = column.cast(pa.int64())
    elif kind == "opt":
        column = column.cast(pa.int64()).fill_null(-1)
    found = column.to_numpy().astype(_DTYPES[kind], copy=False)
    if kind == "u64" and len(found) and found.min() < 0:
        raise ColumnsError(f"column {name}: a value of 2^63 or more")
    if kind == "id" and not all(map(str.isascii, found)):
        odd = next(value for value in found if not value.isascii())
        raise ColumnsError(f"column {name}: {odd[:32]!r} is not ASCII")
    return found


def _strings(name: str, column: pa.ChunkedArray) -> Strings:
    if not column.num_chunks:
        return Strings(np.empty(0, np.int32), [])
    [chunk] = column.chunks
    values = chunk.dictionary.to_pylist()
    if None in values:
        raise ColumnsError(f"column {name}: a null in its dictionary")
    found = Strings(chunk.indices.to_numpy(), values)
    if len(set(values)) < len(values):
        known: dict[str, int] = {}
        codes = found.renumber(known)
        found = Strings(codes, list(known))
    return found


def to_clickhouse(schema: Schema, batch: Columns) -> list[list[Any]]:
    """Returns lists of values for clickhouse-driver's columnar insert.

    Times stay integers in microseconds.
    """
    lists = []
    for name, kind in schema.items():
        values = batch[name].tolist()
        lists.append([None if value < 0 else value for value in values] if kind == "opt" else values)
    return lists
