"""Walking blocks: a column's length follows from the name of its type."""

import struct

import pytest
from spillway_clickhouse.native import Block, Layout, UnsupportedType, parse_type, read_block, read_blocks
from spillway_clickhouse.wire import Reader, string

U64 = struct.Struct("<Q").pack


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("UInt8", 1),
        ("Bool", 1),
        ("Enum8('a' = 1, 'b,(' = 2)", 1),
        ("DateTime('UTC')", 4),
        ("DateTime64(6, 'UTC')", 8),
        ("Decimal(9, 2)", 4),
        ("Decimal(20, 3)", 16),
        ("FixedString(64)", 64),
        ("IntervalSecond", 8),
        ("SimpleAggregateFunction(sum, Float64)", 8),
    ],
)
def test_width_of_fixed_types(text, width):
    """Types of fixed size are recognised with any arguments."""
    assert parse_type(text) == Layout("fixed", width)


def test_nested_types():
    """Composite types have the layout of their parts. Names of tuple fields are not types."""
    text = parse_type("String")
    assert parse_type("Map(String, Array(UInt8))").parts[0].parts == (text, parse_type("Array(UInt8)"))
    assert parse_type("Tuple(a String, `b c` UInt8)").parts == (text, Layout("fixed", 1))
    assert parse_type("LowCardinality(Nullable(String))") == Layout("low", parts=(text,))
    assert parse_type("Nested(a String)") == Layout("array", parts=(Layout("tuple", parts=(text,)),))


@pytest.mark.parametrize(
    "text", ["AggregateFunction(sum, UInt64)", "JSON", "Dynamic", "Array(Variant(UInt8))"]
)
def test_types_that_cannot_be_walked_are_named(text):
    """A type of unknown length is an error that names the type, never a guess."""
    with pytest.raises(UnsupportedType, match="columns of type"):
        parse_type(text)


COLUMNS = {
    "UInt64": U64(1) + U64(2),
    "String": string("ab") + string(""),
    "Nullable(UInt8)": b"\0\1" + b"\x05\0",
    "Array(String)": U64(1) + U64(3) + string("x") + string("y") + string("z"),
    "Map(String, UInt8)": U64(0) + U64(1) + string("k") + b"\x07",
    "LowCardinality(String)": U64(1) + U64(1 << 9 | 1 << 10) + U64(1) + string("q") + U64(2) + b"\0\0",
    "Tuple()": b"\0\0",
    "Array(LowCardinality(String))": U64(1) + U64(0) + U64(0),
}


def test_block_of_all_kinds_comes_back():
    """Each column's bytes end where the next column begins, and a block encodes unchanged."""
    names = tuple(f"c{i}" for i in range(len(COLUMNS)))
    block = Block(names, tuple(COLUMNS), 2, tuple(COLUMNS.values()))
    assert read_blocks(block.encode() * 3) == [block] * 3


def test_block_with_other_type_names():
    """Type names can be replaced without touching the data."""
    block = Block(("t",), ("DateTime",), 1, (b"\1\0\0\0",))
    assert read_blocks(block.encode(["DateTime('UTC')"]))[0].types == ("DateTime('UTC')",)


def test_header_has_no_data():
    """A block of zero rows has names and types only."""
    header = Block(("a",), ("LowCardinality(String)",))
    assert read_blocks(header.encode()) == [header]


def test_a_block_cut_short_is_an_error():
    """A source that ends inside a column raises EOFError."""
    data = iter([Block(("a",), ("UInt64",), 2, (U64(1) * 2,)).encode()[:-1]])
    with pytest.raises(EOFError):
        read_block(Reader(lambda: next(data, b"")))
