"""Native blocks, made from whole buffers, against the column writers of clickhouse-driver."""

from io import BytesIO

import numpy as np
import pytest
from clickhouse_driver.bufferedreader import BufferedReader
from clickhouse_driver.bufferedwriter import CompressedBufferedWriter
from clickhouse_driver.columns.service import read_column, write_column
from clickhouse_driver.context import Context
from spillway_streams.batches import blocks
from spillway_streams.batches.strings import Strings


class _Server:
    used_revision = 54453
    session_timezone = None

    def get_timezone(self) -> str:
        return "UTC"


def _driver(kind: str, values: list) -> bytes:
    context = Context()
    context.client_settings = {"strings_as_bytes": False, "strings_encoding": "utf-8", "use_numpy": False,
                               "input_format_null_as_default": False, "namedtuple_as_json": False,
                               "server_side_params": False, "opentelemetry_traceparent": None,
                               "opentelemetry_tracestate": "", "quota_key": ""}  # fmt: skip
    context.server_info = _Server()
    context.settings = {}
    out = BytesIO()
    writer = CompressedBufferedWriter(out, 1 << 20)  # accepts anything that has write()
    write_column(context, "c", kind, values, writer)
    writer.flush()
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("UInt16", np.array([0, 200, 65535])),
        ("UInt64", np.array([0, 2**62])),
        ("Int16", np.array([-5, 7])),
        ("Float64", np.array([0.5, -1e300])),
        ("Bool", np.array([True, False])),
        ("DateTime64(6, 'UTC')", np.array([1_700_000_000_000_001])),
        ("DateTime('UTC')", np.array([1_700_000_000])),
        ("SimpleAggregateFunction(sum, Float64)", np.array([2.5])),
    ],
)
def test_numbers_are_what_the_driver_writes(kind, column):
    """Each type of our tables, byte for byte."""
    plain = "Float64" if kind.startswith("Simple") else kind
    assert blocks.encode(kind, column) == _driver(plain, column.tolist())


def test_nulls_and_texts_are_what_the_driver_writes():
    """-1 becomes NULL. Hex ids have one width, and '' stands for no id. Any text is allowed."""
    assert blocks.encode("Nullable(UInt64)", np.array([5, -1, 7])) == _driver(
        "Nullable(UInt64)", [5, None, 7]
    )
    ids = np.frombuffer(b"0123456789abcdef" + b"\0" * 16 + b"fedcba9876543210", np.uint8).reshape(3, 16)
    assert blocks.encode("String", ids) == _driver("String", ["0123456789abcdef", "", "fedcba9876543210"])
    texts = ["", "\N{SNOWMAN}", "x" * 300]
    assert blocks.encode("String", Strings.of(texts)) == _driver("String", texts)


@pytest.mark.parametrize("distinct", [1, 200, 256, 300, 70_000])
def test_a_dictionary_has_the_key_width_that_it_needs(distinct):
    """The driver's reader returns from keys and codes the texts that were written."""

    class Reader(BufferedReader):
        def __init__(self, data: bytes) -> None:
            super().__init__(bytearray(data))
            self.position, self.current_buffer_size = 0, len(data)

        def read_into_buffer(self) -> None:
            raise EOFError

    texts = [f"value {i}" for i in range(distinct)] * 2
    data = blocks.encode("LowCardinality(String)", Strings.of(texts))
    context = Context()
    context.client_settings = {"strings_as_bytes": False, "strings_encoding": "utf-8", "use_numpy": False}
    context.server_info = _Server()
    assert [*read_column(context, "LowCardinality(String)", len(texts), Reader(data))] == texts


def test_numbers_beyond_the_tables_type_are_clamped():
    """A count that is too large must not become a small one."""
    assert blocks.encode("UInt32", np.array([2**40, 3])) == np.array([2**32 - 1, 3], "<u4").tobytes()


def test_an_unknown_type_is_named():
    """If a table has changed a column's type, the error names the type."""
    with pytest.raises(blocks.UnsupportedType, match="UUID"):
        blocks.encode("UUID", np.array([1]))
