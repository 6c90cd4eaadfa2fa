"""Statements: the parts of their text on which the server acts."""

import pytest
from spillway_clickhouse.sql import (
    Unsupported,
    check_supported,
    is_select,
    parse_insert,
    parse_set,
    tokens,
    without_format,
)


@pytest.mark.parametrize(
    ("text", "head", "columns"),
    [
        ("INSERT INTO t VALUES", "INSERT INTO t", None),
        ("insert into db.t (a, `b c`) values", "insert into db.t (a, `b c`)", ("a", "b c")),
        ("INSERT INTO TABLE t (n.a) FORMAT Native", "INSERT INTO TABLE t (n.a)", ("n.a",)),
        ("INSERT INTO t", "INSERT INTO t", None),
        ("INSERT INTO t SETTINGS max_threads=1 VALUES", "INSERT INTO t", None),
        ("/* why */ INSERT INTO t -- x\n (a) VALUES;", "/* why */ INSERT INTO t -- x\n (a)", ("a",)),
    ],
)
def test_insert_with_blocks(text, head, columns):
    """An INSERT whose rows come as blocks is recognised, with its head and its columns."""
    found = parse_insert(text, tokens(text))
    assert (found.head, found.columns) == (head, columns)


@pytest.mark.parametrize(
    "text",
    ["INSERT INTO t VALUES (1)", "INSERT INTO t SELECT 1", "INSERT INTO t (a) WITH 1 AS x SELECT x",
     "INSERT INTO t (SELECT 1)", "SELECT 'INSERT INTO t VALUES'", "INSERT INTO t FORMAT CSV 1,2", ""],
)  # fmt: skip
def test_insert_without_blocks(text):
    """An INSERT with data in its text, a SELECT and other statements wait for no blocks."""
    assert parse_insert(text, tokens(text)) is None


@pytest.mark.parametrize(
    "text",
    ["SELECT a, count() FROM t GROUP BY a WITH TOTALS", "SELECT 1 INTO OUTFILE 'x'", "SET extremes = 1"],
)
def test_refused(text):
    """Statements whose result the engine would drop or write elsewhere are refused by name."""
    with pytest.raises(Unsupported):
        check_supported(tokens(text))


@pytest.mark.parametrize(
    "text", ["WITH totals AS (SELECT 1) SELECT 1", "SELECT 'WITH TOTALS'", "SELECT 1 -- WITH TOTALS"]
)
def test_not_refused(text):
    """Quotes, comments and similar names are not refused."""
    check_supported(tokens(text))


def test_set():
    """The settings of a SET are read, with commas inside values."""
    text = "SET a = 1, b = 'x,y', c = [1, 2]"
    assert parse_set(text, tokens(text)) == {"a": "1", "b": "'x,y'", "c": "[1, 2]"}
    assert parse_set("SELECT 1", tokens("SELECT 1")) == {}


def test_format_at_the_end_goes():
    """A FORMAT at the end and semicolons are removed. A FORMAT inside the statement stays."""
    for text, plain in [
        ("SELECT 1 FORMAT JSON;", "SELECT 1"),
        ("SELECT 'FORMAT x'", "SELECT 'FORMAT x'"),
        ("SELECT 1 AS format", "SELECT 1 AS format"),
    ]:
        assert without_format(text, tokens(text)) == plain


def test_select_in_its_spellings():
    """SELECT, WITH, FROM and parentheses begin a query. SHOW does not."""
    texts = [
        "select 1",
        "WITH 1 AS x SELECT x",
        "(SELECT 1) UNION ALL SELECT 2",
        "FROM t SELECT a",
        "SHOW TABLES",
    ]
    assert [is_select(tokens(text)) for text in texts] == [True, True, True, True, False]
