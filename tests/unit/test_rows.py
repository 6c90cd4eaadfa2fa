"""contracts/rows.yaml lists the columns of rows once, for Python, Rust and ClickHouse."""

import re
from pathlib import Path

import pytest
import yaml
from spillway_contracts import rows as generated
from spillway_streams.batches import columns

ROOT = Path(__file__).resolve().parents[2]
ROWS = yaml.safe_load((ROOT / "contracts/rows.yaml").read_text())
DDL = "\n".join(path.read_text() for path in sorted((ROOT / "contracts/clickhouse").glob("*.sql")))
NATIVE = ROOT / "streams/native/core/src/output"
# Types of ClickHouse that can hold each kind.
TYPES = {
    "time": r"DateTime64\(6, 'UTC'\)", "id": r"String", "str": r"(LowCardinality\(String\)|Enum8\(.*\)|String)",
    "u64": r"UInt(8|16|32|64)", "opt": r"Nullable\(UInt(32|64)\)", "i64": r"(Int(16|32|64)|DateTime\('UTC'\))",
    "f64": r"Float64", "bool": r"Bool",
}  # fmt: skip
# Kinds of the native module's columns.
NATIVE_KINDS = {
    "time": "I64", "id": "Hex", "str": "Text", "u64": "U64", "opt": "I64", "i64": "I64", "f64": "F64", "bool": "Bool",
}  # fmt: skip
TABLES = {"calls": "Calls", "edges": "Edges", "spans": "Raw", "arrivals": "Arrivals", "network": "Network"}


def _table(name: str) -> dict[str, str]:
    """Returns the definition of each column of a table, also of those that later files add."""
    body = re.search(rf"CREATE TABLE IF NOT EXISTS {name}\n\(\n(.*?)\n\)\n", DDL, re.S)
    assert body, name
    lines = re.findall(r"^    (\w+)\s+(.*?),?\s*(?:--.*)?$", body[1], re.M)
    added = re.findall(rf"ALTER TABLE {name}\b[^;]*?ADD COLUMN (?:IF NOT EXISTS )?(\w+)\s+([^;,]*)", DDL)
    return {column: kind for column, kind in [*lines, *added] if column not in ("INDEX", "PROJECTION")}


@pytest.mark.parametrize("name", ["calls", "edges", "spans"])
def test_a_table_has_the_columns_of_its_rows(name):
    """Each with a type that holds the kind. Columns beyond have a default."""
    table, row = _table(name), ROWS[name]["columns"]
    assert set(row) <= set(table)
    for column, kind in row.items():
        assert re.match(TYPES[kind], table[column]), f"{name}.{column}: {table[column]} for {kind}"
    assert [column for column in set(table) - set(row) if " DEFAULT " not in f" {table[column]} "] == []


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_native_module_writes_the_columns_of_the_row(name):
    """Names and kinds of its table! are those of rows.yaml. An optional number is -1 there."""
    source = "\n".join(path.read_text() for path in sorted(NATIVE.glob("*.rs")))
    body = re.search(rf"table!\(\n(?:    ///[^\n]*\n)*    {TABLES[name]} \{{\n(.*?)\n    \}}", source, re.S)
    assert body, TABLES[name]
    found = dict(re.findall(r'\w+ "(\w+)": (\w+),', body[1]))
    assert found == {column: NATIVE_KINDS[kind] for column, kind in ROWS[name]["columns"].items()}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_streams_use_the_generated_columns(name):
    """In the order of rows.yaml, which is the order of the columns in messages."""
    expected = list(ROWS[name]["columns"].items())
    assert list(getattr(generated, name.upper()).items()) == expected
    assert list(getattr(columns, name.upper()).items()) == expected


def test_every_kind_has_a_form_everywhere():
    """A kind that is added to rows.yaml needs a type in Arrow, ClickHouse and the native module."""
    used = {kind for row in ROWS.values() for kind in row["columns"].values()}
    assert used <= set(TYPES) == set(NATIVE_KINDS) == set(columns.ARROW)
