"""Turns rows made by the native module into Arrow messages and ClickHouse columns.

No Python object is created per row.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spillway_streams.batches import columns
from spillway_streams.batches.columns import Columns, Schema
from spillway_streams.batches.strings import Strings

if TYPE_CHECKING:
    from spillway_native import Batch

_DTYPES = {"i64": "<i8", "u64": "<i8", "f64": "<f8", "bool": "?", "str": "<i4", "hex": "u1"}


def read(schema: Schema, batch: "Batch") -> Columns:
    """Returns the columns of the schema as arrays over the batch's own memory.

    Numbers are numpy arrays (u64 as int64). Text columns are Strings that share one dictionary. Ids
    are uint8 of shape (n, digits).
    """
    found: Columns = {}
    dictionary = batch.dictionary
    for name in schema:
        kind, buffer = batch.column(name)
        values: Any = np.frombuffer(buffer, dtype=_DTYPES[kind])
        if kind == "str":
            values = Strings(values, dictionary)
        elif kind == "hex":
            values = values.reshape(batch.rows, -1) if batch.rows else values.reshape(0, 1)
        found[name] = values
    return found


def messages(schema: Schema, batch: "Batch", rows: Columns) -> Iterator[tuple[int, int, bytes]]:
    """Yields (sequence, partition, Arrow IPC stream) for each slice of the batch.

    `rows`: the columns of the batch, as `read` returns them.
    """
    arrow = columns.arrow_schema(schema)
    for sequence, partition, first, end in batch.slices:
        arrays = [_array(kind, rows[name][first:end]) for name, kind in schema.items()]
        yield sequence, partition, columns.write(pa.record_batch(arrays, schema=arrow))


def _array(kind: str, column: Any) -> pa.Array:
    if kind != "id":
        return columns.to_arrow(kind, column)
    rows, width = column.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(
        rows, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(column))
    )


def as_python(schema: Schema, rows: Columns) -> Columns:
    """Returns the same columns in the form of columns.from_ipc.

    Ids become objects of str, with '' for an absent id.
    """
    return {
        name: np.array([bytes(row).rstrip(b"\0").decode() for row in rows[name]], dtype=object)
        if kind == "id"
        else rows[name]
        for name, kind in schema.items()
    }
