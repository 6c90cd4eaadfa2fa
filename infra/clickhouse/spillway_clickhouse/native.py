"""Finds where each column's bytes end in blocks of `FORMAT Native`, without decoding the values.

A block does not contain its length, so the column types must be walked. Source: ClickHouse
`src/Formats/NativeReader.cpp` and `src/DataTypes/Serializations`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from spillway_clickhouse.wire import Reader, string, varint

# Bytes of one value. A type with arguments is looked up by its name before the parenthesis.
_WIDTHS = {
    **dict.fromkeys(["Int8", "UInt8", "Bool", "Enum8", "Nothing"], 1),
    **dict.fromkeys(["Int16", "UInt16", "Date", "Enum16", "BFloat16"], 2),
    **dict.fromkeys(["Int32", "UInt32", "Float32", "Date32", "DateTime", "Time", "IPv4", "Decimal32"], 4),
    **dict.fromkeys(["Int64", "UInt64", "Float64", "DateTime64", "Time64", "Decimal64"], 8),
    **dict.fromkeys(["Int128", "UInt128", "UUID", "IPv6", "Decimal128"], 16),
    **dict.fromkeys(["Int256", "UInt256", "Decimal256"], 32),
}
_ALIASES = {
    "Point": "Tuple(Float64, Float64)",
    "Ring": "Array(Point)",
    "LineString": "Array(Point)",
    "MultiLineString": "Array(LineString)",
    "Polygon": "Array(Ring)",
    "MultiPolygon": "Array(Polygon)",
}
_NAMED = re.compile(r"^(?:`(?:[^`\\]|\\.|``)*`|[A-Za-z_]\w*)\s+(?=[A-Za-z])")
_HAS_KEYS, _GLOBAL_DICTIONARY = 1 << 9, 1 << 8


class UnsupportedType(Exception):
    """A column type whose length in bytes this module cannot determine."""


@dataclass(frozen=True)
class Layout:
    """How a type's values are stored in a column.

    `kind`: fixed, string, nullable, array, tuple or low (LowCardinality).
    """

    kind: str
    width: int = 0  # bytes of one value when the kind is fixed
    parts: tuple[Layout, ...] = ()


@dataclass(frozen=True)
class Block:
    """Columns with the same number of rows: names, types, and each column's bytes."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: int = 0
    data: tuple[bytes, ...] = ()

    def encode(self, types: Sequence[str] | None = None) -> bytes:
        """Returns the block as `FORMAT Native`.

        `types`: other names for the same types; by default the block's own.
        """
        out = [varint(len(self.names)), varint(self.rows)]
        for position, (name, kind) in enumerate(zip(self.names, types or self.types, strict=True)):
            out += [string(name), string(kind)]
            if self.rows:
                out.append(self.data[position])
        return b"".join(out)


def read_block(reader: Reader) -> Block:
    """Returns the next block.

    Raises UnsupportedType for a type that cannot be walked, EOFError at the end.
    """
    columns, rows = reader.varint(), reader.varint()
    names, types, data = [], [], []
    for _ in range(columns):
        names.append(reader.string())
        types.append(reader.string())
        if rows:
            layout = parse_type(types[-1])
            reader.record()
            _skip_prefix(reader, layout)
            _skip_values(reader, layout, rows)
            data.append(reader.recorded())
    return Block(tuple(names), tuple(types), rows, tuple(data))


def read_blocks(data: bytes) -> list[Block]:
    """Returns all blocks in a result's bytes, in order."""
    chunks = iter([data])
    reader = Reader(lambda: next(chunks, b""))
    blocks = []
    left = len(data)
    while left:
        blocks.append(read_block(reader))
        left = reader.buffered
    return blocks


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Layout:
    """Returns the layout of a type given by its ClickHouse name.

    Raises UnsupportedType for types without a known layout.
    """
    text = text.strip()
    name, _, rest = text.partition("(")
    arguments = _split(rest[:-1]) if rest else []
    if name in _ALIASES:
        return parse_type(_ALIASES[name])
    if name in _WIDTHS:
        return Layout("fixed", _WIDTHS[name])
    if name.startswith("Interval"):
        return Layout("fixed", 8)
    if name == "Decimal":
        precision = int(arguments[0])
        return Layout("fixed", next(w for p, w in ((9, 4), (18, 8), (38, 16), (76, 32)) if precision <= p))
    if name == "FixedString":
        return Layout("fixed", int(arguments[0]))
    if name == "String":
        return Layout("string")
    return _parse_composite(name, arguments, text)


def _parse_composite(name: str, arguments: list[str], text: str) -> Layout:
    if name == "Nullable":
        return Layout("nullable", parts=(parse_type(arguments[0]),))
    if name == "Array":
        return Layout("array", parts=(parse_type(arguments[0]),))
    if name == "Map":
        return Layout("array", parts=(Layout("tuple", parts=tuple(map(parse_type, arguments))),))
    if name in ("Tuple", "Nested"):
        fields = Layout("tuple", parts=tuple(parse_type(_NAMED.sub("", a)) for a in arguments))
        return Layout("array", parts=(fields,)) if name == "Nested" else fields
    if name == "LowCardinality":
        inner = parse_type(arguments[0])
        # NULL is an ordinary key, so the dictionary has no null mask.
        return Layout("low", parts=inner.parts if inner.kind == "nullable" else (inner,))
    if name == "SimpleAggregateFunction":
        return parse_type(arguments[1])
    raise UnsupportedType(f"columns of type {text} are not supported by this server")


def _split(text: str) -> list[str]:
    """Splits a type's arguments at the commas outside parentheses and quotes."""
    parts, depth, quote, start, position = [], 0, "", 0, 0
    while position < len(text):
        char = text[position]
        if char == "\\" and quote:
            position += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'`":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "," and not depth:
            parts.append(text[start:position].strip())
            start = position + 1
        position += 1
    return [*parts, text[start:].strip()] if text.strip() else []


def _skip_prefix(reader: Reader, layout: Layout) -> None:
    """Skips the prefixes of all nested columns, which come before any value."""
    if layout.kind == "low":
        reader.skip(8)  # version of the keys' serialization
    for part in layout.parts:
        _skip_prefix(reader, part)


def _skip_values(reader: Reader, layout: Layout, rows: int) -> None:
    if not rows:
        return
    if layout.kind == "fixed":
        reader.skip(layout.width * rows)
    elif layout.kind == "string":
        reader.read_strings(rows)
    elif layout.kind == "nullable":
        reader.skip(rows)
        _skip_values(reader, layout.parts[0], rows)
    elif layout.kind == "array":
        reader.skip(8 * (rows - 1))
        _skip_values(reader, layout.parts[0], reader.uint64())  # the last offset is the total
    elif layout.kind == "low":
        _skip_low_cardinality(reader, layout)
    elif layout.parts:
        for part in layout.parts:
            _skip_values(reader, part, rows)
    else:
        reader.skip(rows)  # Tuple() has one byte per row


def _skip_low_cardinality(reader: Reader, layout: Layout) -> None:
    (flags,) = struct.unpack("<Q", reader.read(8))
    if flags & _GLOBAL_DICTIONARY or not flags & _HAS_KEYS:
        raise UnsupportedType("LowCardinality with a dictionary shared between blocks")
    _skip_values(reader, layout.parts[0], reader.uint64())
    reader.skip(reader.uint64() << (flags & 0xFF))
