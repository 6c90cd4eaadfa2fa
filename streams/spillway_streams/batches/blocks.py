"""Columns in ClickHouse's Native wire format, made of whole buffers: no Python object per value.

clickhouse-driver's own columnar insert takes 0.8 us of CPU per row of calls and a Python list per
column. This one takes 0.1 us. The driver's connection, compression and error handling are used
unchanged. Source of the format: ClickHouse `src/DataTypes/Serializations`.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from clickhouse_driver import Client, defines
from clickhouse_driver.block import BlockInfo
from clickhouse_driver.protocol import ClientPacketTypes
from clickhouse_driver.varint import write_varint
from clickhouse_driver.writer import write_binary_str, write_binary_uint8
from numpy.typing import NDArray

from spillway_streams import StreamsError
from spillway_streams.batches.arrays import Bools
from spillway_streams.batches.strings import Strings

_NUMBERS = {
    "UInt8": "<u1", "UInt16": "<u2", "UInt32": "<u4", "UInt64": "<u8", "Int8": "<i1", "Int16": "<i2", "Int32": "<i4",
    "Int64": "<i8", "Float32": "<f4", "Float64": "<f8", "Bool": "<u1", "DateTime": "<u4", "DateTime64": "<i8",
}  # fmt: skip
_NUMBER = re.compile(r"(?:SimpleAggregateFunction\(\w+, )?(\w+)(?:\(.*\))?\)?")
# Flags of LowCardinality: the block contains its keys, and there are no others.
_KEYS_HERE = (1 << 9) | (1 << 10)


class UnsupportedType(StreamsError):
    """A column type of a table that `encode` cannot write."""


def encode(kind: str, column: Any) -> bytes:
    """Returns the bytes of one column, which must not be empty, for this ClickHouse type.

    Text is given as Strings or as an array of str; for String also as fixed-width hex, uint8 of
    shape (n, width). Numbers are given as numpy arrays. For Nullable numbers, -1 stands for NULL.
    """
    if kind == "LowCardinality(String)":
        return _low_cardinality(column if isinstance(column, Strings) else Strings.of(column))
    if kind == "String":
        return _texts(column)
    if kind.startswith("Nullable("):
        absent: Bools = column < 0
        return absent.astype("u1").tobytes() + _numbers(kind[9:-1], np.where(absent, 0, column))
    return _numbers(kind, column)


def _numbers(kind: str, column: NDArray[Any]) -> bytes:
    found = _NUMBER.fullmatch(kind)
    if not found or found[1] not in _NUMBERS:
        raise UnsupportedType(f"ClickHouse type {kind}")
    dtype = np.dtype(_NUMBERS[found[1]])
    if dtype.kind in "iu" and dtype.itemsize < 8 and column.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        column = np.clip(column, limits.min, limits.max)  # a wrapped value would look small
    return column.astype(dtype, copy=False).tobytes()


def _texts(column: Any) -> bytes:
    if isinstance(column, np.ndarray) and column.dtype == np.uint8:
        framed = np.empty((len(column), column.shape[1] + 1), dtype=np.uint8)
        framed[:, 0] = column.shape[1]  # a length below 128 is one byte
        framed[:, 1:] = column
        absent = column[:, 0] == 0
        if absent.any():  # NUL bytes stand for ''
            framed[absent, 0] = 0
            absent = np.broadcast_to(absent[:, None], framed.shape) & (np.arange(framed.shape[1]) > 0)
            return framed[~absent].tobytes()
        return framed.tobytes()
    if isinstance(column, Strings):
        texts = [_framed(value) for value in column.values]
        return b"".join([texts[code] for code in column.codes.tolist()])
    return b"".join(map(_framed, column))


def _framed(text: str) -> bytes:
    data = text.encode()
    length, head = len(data), bytearray()
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + data


def _low_cardinality(column: Strings) -> bytes:
    # The first key is the type's default, here the empty text. ClickHouse itself writes it so.
    used = column.compact()
    keys = ["", *used.values]
    width = next(i for i, limit in enumerate((1 << 8, 1 << 16, 1 << 32)) if len(keys) <= limit)
    head = np.array([1, _KEYS_HERE | width, len(keys)], dtype="<u8").tobytes()
    codes = (used.codes + 1).astype(("<u1", "<u2", "<u4")[width])
    return b"".join([head, *map(_framed, keys), np.uint64(len(codes)).tobytes(), codes.tobytes()])


def insert(client: Client, table: str, blocks: Sequence[dict[str, Any]]) -> None:
    """Executes one INSERT of these blocks, which must not be empty and have the same columns.

    Raises what clickhouse-driver raises. After an error the client is disconnected.
    """
    sql = f"INSERT INTO {table} ({', '.join(f'`{name}`' for name in blocks[0])}) VALUES"
    with client.disconnect_on_error(sql, None):
        connection = client.connection
        connection.send_query(sql)
        connection.send_external_tables(None)
        types = client.receive_sample_block().columns_with_types
        for block in blocks:
            _send(connection, types, len(next(iter(block.values()))), block)
            client.receive_profile_events()
        _send(connection, [], 0, {})  # an empty block ends the data
        client.receive_profile_events()
        client.receive_end_of_insert_query()


def _send(connection: Any, types: list[tuple[str, str]], rows: int, columns: dict[str, Any]) -> None:
    revision, stream = connection.server_info.used_revision, connection.block_out
    write_varint(ClientPacketTypes.DATA, connection.fout)
    write_binary_str("", connection.fout)  # the block belongs to no external table
    out = stream.fout
    BlockInfo().write(out)
    write_varint(len(types), out)
    write_varint(rows, out)
    for name, kind in types:
        write_binary_str(name, out)
        write_binary_str(kind, out)
        if revision >= defines.DBMS_MIN_REVISION_WITH_CUSTOM_SERIALIZATION:
            write_binary_uint8(0, out)
        out.write(encode(kind, columns[name]))
    stream.finalize()
