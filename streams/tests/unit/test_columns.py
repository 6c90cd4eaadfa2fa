"""Batches sent as Arrow: text as codes, other writers, damaged bytes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_streams.batches import columns
from spillway_streams.batches.strings import Strings

TEXTS = st.lists(st.sampled_from(["", "a", "b", "\N{SNOWMAN}", "c" * 40]))
NETWORK = [(1, "c1", "c2", -3, 2.0, 5.5), (2, "c1", "c1", 40, 1.0, 7.0), (2, "c2", "c1", 0, 1.0, 0.5)]


def _with(table: pa.Table, name: str, column: pa.Array | None) -> bytes:
    """Returns the table's IPC stream with one column replaced or, if `column` is None, removed."""
    at = table.column_names.index(name)
    table = table.remove_column(at) if column is None else table.set_column(at, name, column)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def table() -> pa.Table:
    payload = columns.to_ipc(columns.NETWORK, columns.from_rows(columns.NETWORK, NETWORK))
    return pa.ipc.open_stream(payload).read_all()


@given(TEXTS, TEXTS)
@settings(max_examples=50)
def test_text_as_codes_is_text(first, second):
    """Selecting, joining, compacting and comparing coded text is the same as with plain lists."""
    head, tail = Strings.of(first), Strings.of(second)
    both = Strings.concat([head, tail])
    assert both.tolist() == first + second == list(both)
    assert len(set(both.values)) == len(both.values)
    mask = np.array([text != "a" for text in first + second], dtype=bool)
    kept = both[mask]
    assert kept.tolist() == [text for text in first + second if text != "a"]
    assert kept.compact().tolist() == kept.tolist() and set(kept.compact().values) == set(kept.tolist())
    assert (both == "a").tolist() == (~mask).tolist()
    assert np.asarray(both).tolist() == first + second


def test_text_is_grouped_by_code_after_the_wire(table):
    """Codes index distinct values. Only the requested columns are returned."""
    payload = _with(table, "bucket", table.column("bucket"))
    batch = columns.from_ipc(columns.NETWORK, payload, only=("source_cluster", "calls"))
    assert set(batch) == {"source_cluster", "calls"}
    source = batch["source_cluster"]
    sums = np.bincount(source.codes, weights=batch["calls"], minlength=len(source.values))
    assert dict(zip(source.values, sums.tolist(), strict=True)) == {"c1": 3.0, "c2": 1.0}


def test_plain_text_and_repeated_dictionary_values_are_read(table):
    """Another writer may send plain strings, or a dictionary with a repeated value."""
    plain = _with(table, "source_cluster", pa.array(["x", "y", "x"]))
    found = columns.from_ipc(columns.NETWORK, plain)["source_cluster"]
    assert found.tolist() == ["x", "y", "x"] and sorted(found.values) == ["x", "y"]
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["x", "y", "x"]))
    found = columns.from_ipc(columns.NETWORK, _with(table, "source_cluster", twice))["source_cluster"]
    assert found.tolist() == ["x", "y", "x"] and found.values == ["x", "y"]


def test_a_column_must_be_there_once(table):
    """The error names a column that is missing or doubled."""
    with pytest.raises(columns.ColumnsError, match="column bucket: there 0 times; must be once"):
        columns.from_ipc(columns.NETWORK, _with(table, "bucket", None))
    doubled = table.append_column("calls", table.column("calls"))
    with pytest.raises(columns.ColumnsError, match="column calls: there 2 times; must be once"):
        columns.from_ipc(columns.NETWORK, _with(doubled, "bucket", table.column("bucket")))


@pytest.mark.parametrize("kind", ["u64", "opt"])
def test_a_number_that_has_no_place_is_refused(kind):
    """2^63 and more are no int64, whether or not the column may be empty."""
    table = pa.table(
        [pa.array([1 << 63], pa.uint64())], pa.schema([pa.field("n", pa.uint64(), kind == "opt")])
    )
    with pytest.raises(columns.ColumnsError):
        columns.from_ipc({"n": kind}, _with(table, "n", table.column("n")))


def test_an_id_is_ascii(table):
    """Ids are kept as bytes of a fixed width. The error names the column of an invalid one."""
    ids = pa.table([pa.array(["7\u00e9"])], pa.schema([pa.field("trace_id", pa.string(), False)]))
    with pytest.raises(columns.ColumnsError, match="column trace_id: '7\u00e9' is not ASCII"):
        columns.from_ipc({"trace_id": "id"}, _with(ids, "trace_id", ids.column("trace_id")))


def _bad_codes() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 900, 1], pa.int32()), pa.array(["x", "y"]), safe=False)


@pytest.mark.parametrize(
    ("name", "column", "says"),
    [
        ("source_cluster", _bad_codes(), "not an Arrow IPC stream"),
        ("source_cluster", pa.array(["x", None, "y"]), "1 nulls"),
        ("calls", pa.array([1, 2, 3]), "type int64; must be double"),
        ("calls", pa.array([1.0, None, 2.0]), "1 nulls"),
    ],
)
def test_a_lying_batch_is_refused(table, name, column, says):
    """Indices beyond the dictionary, nulls and other types are errors that name it, not crashes."""
    with pytest.raises(columns.ColumnsError, match=says):
        columns.from_ipc(columns.NETWORK, _with(table, name, column))


@given(st.integers(0, 2**16), st.binary(max_size=6), st.data())
@settings(max_examples=200)
def test_damaged_bytes_never_do_worse_than_an_error(at, damage, data):
    """Whatever is overwritten or cut off, the result is a batch or ColumnsError."""
    payload = columns.to_ipc(columns.NETWORK, columns.from_rows(columns.NETWORK, NETWORK))
    at %= len(payload)
    broken = (payload[:at] + damage + payload[at + len(damage) :])[: data.draw(st.integers(0, len(payload)))]
    try:
        columns.from_ipc(columns.NETWORK, broken)
    except columns.ColumnsError:
        pass
