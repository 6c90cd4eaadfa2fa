"""Features of ClickHouse that the project uses, on any server (SPILLWAY_CLICKHOUSE_TEST_URL)."""

import threading
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from uuid import UUID

import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import ServerException
from spillway_lab.testing.waiting import STOP_S

pytestmark = pytest.mark.component

MOMENT = datetime(2026, 3, 4, 5, 6, 7, 123456, tzinfo=UTC)
VALUES = [
    ("String", ["", "ünï", "x" * 5000]),
    ("LowCardinality(String)", ["a", "b", "a"]),
    ("LowCardinality(Nullable(String))", ["a", None, ""]),
    ("Nullable(UInt64)", [None, 0, 2**64 - 1]),
    ("Float64", [0.0, -1.5, 1e300]),
    ("Bool", [True, False, True]),
    ("DateTime('UTC')", [MOMENT.replace(microsecond=0)] * 3),
    ("DateTime64(6, 'UTC')", [MOMENT] * 3),
    ("DateTime64(3, 'UTC')", [MOMENT.replace(microsecond=123000)] * 3),
    ("Nullable(DateTime('UTC'))", [None, MOMENT.replace(microsecond=0), None]),
    ("Date", [date(2026, 1, 2)] * 3),
    ("Map(String, UInt32)", [{}, {"a": 1}, {"a": 1, "b": 2}]),
    ("Map(String, Array(LowCardinality(String)))", [{}, {"k": ["v", "v"]}, {"l": []}]),
    ("Array(Nullable(Float64))", [[], [1.0, None], [2.5]]),
    ("Array(Array(String))", [[], [["a"], []], [["b", "c"]]]),
    ("Tuple(UInt8, String)", [(1, "a"), (2, ""), (3, "c")]),
    ("Enum8('a' = 1, 'b' = 2)", ["a", "b", "a"]),
    ("Decimal(18, 4)", [Decimal("1.5"), Decimal("-2.0001"), Decimal(0)]),
    ("FixedString(4)", ["abcd", "ab\0\0", "\0" * 4]),
    ("UUID", [UUID(int=7)] * 3),
    ("IPv4", [IPv4Address("127.0.0.1")] * 3),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[kind for kind, _ in VALUES])
def test_types_come_back(client, kind, values):
    """Values of each type read back as inserted, with the column's full type."""
    client.execute(f"CREATE TABLE t (i UInt8, v {kind}) ENGINE = MergeTree ORDER BY i")
    rows = list(enumerate(values))
    assert client.execute("INSERT INTO t (i, v) VALUES", rows) == 3
    found, columns = client.execute("SELECT i, v FROM t ORDER BY i", with_column_types=True)
    expected = [v.rstrip("\0") for v in values] if kind.startswith("FixedString") else values
    assert [v for _, v in found] == expected
    assert columns == [("i", "UInt8"), ("v", kind)]


def test_no_rows_still_have_columns(client):
    """A result without rows still has its columns and their types."""
    query = "SELECT now('UTC') AS at, 'x' AS s WHERE 0"
    assert client.execute(query, with_column_types=True) == ([], [("at", "DateTime('UTC')"), ("s", "String")])


def test_a_million_rows(client):
    """A million rows are inserted and read back, in many blocks."""
    client.execute("CREATE TABLE t (n UInt64, s String, f Float64) ENGINE = MergeTree ORDER BY n")
    numbers = range(1_000_000)
    columns = [list(numbers), [f"row {n}" for n in numbers], [n / 2 for n in numbers]]
    begin = time.monotonic()
    assert client.execute("INSERT INTO t VALUES", columns, columnar=True) == 1_000_000
    inserted = time.monotonic()
    assert client.execute("SELECT * FROM t ORDER BY n", columnar=True) == [tuple(c) for c in columns]
    read = time.monotonic()
    print(f"\n{1e6 / (inserted - begin):,.0f} rows/s in, {1e6 / (read - inserted):,.0f} rows/s out")


def test_numpy_columns(client, database):
    """Columns can be inserted from numpy arrays and read into them."""
    numpy = pytest.importorskip("numpy")
    with Client.from_url(database + ("&" if "?" in database else "?") + "use_numpy=1") as fast:
        fast.execute("CREATE TABLE t (n UInt64, f Float64) ENGINE = MergeTree ORDER BY n")
        n = numpy.arange(100_000, dtype="uint64")
        fast.execute("INSERT INTO t VALUES", [n, n / 4], columnar=True)
        assert numpy.array_equal(fast.execute("SELECT f FROM t ORDER BY n", columnar=True)[0], n / 4)


def test_rows_in_the_text_and_from_a_query(client):
    """INSERT works with VALUES in the text, with SELECT, and with blocks for some columns."""
    client.execute("CREATE TABLE t (n UInt64, s String DEFAULT 'd', m UInt64 MATERIALIZED n + 1) "
                   "ENGINE = MergeTree ORDER BY n")  # fmt: skip
    client.execute("INSERT INTO t (n, s) VALUES (1, 'a'), (2, 'b')")
    client.execute("INSERT INTO t (n, s) SELECT n + 10, s FROM t")
    client.execute("INSERT INTO t (n) VALUES", [(30,)])
    client.execute("INSERT INTO t VALUES", [(40, "z")])
    expected = [(1, "a", 2), (2, "b", 3), (11, "a", 12), (12, "b", 13), (30, "d", 31), (40, "z", 41)]
    assert client.execute("SELECT n, s, m FROM t ORDER BY n") == expected


def test_streaming_read(client):
    """A result that is read row by row arrives whole."""
    rows = client.execute_iter("SELECT number FROM numbers(300000)", {"max_block_size": 10000})
    assert sum(n for (n,) in rows) == 299_999 * 300_000 // 2


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT * FROM absent", 60),
        ("SELECT absent", 47),
        ("SELEC 1", 62),
        ("SELECT throwIf(number = 200000) FROM numbers(1000000)", 395),
        ("CREATE TABLE t (a Nonsense) ENGINE = MergeTree ORDER BY a", 50),
        ("INSERT INTO absent SELECT 1", 60),
        ("SET no_such_setting = 1", 115),
        ("SELECT 1; SELECT 2", 62),
        ("SELECT {p:UInt8}", 456),
    ],
)
def test_errors_have_clickhouse_codes(client, query, code):
    """An error carries ClickHouse's code, and the client can continue."""
    with pytest.raises(ServerException) as error:
        client.execute(query)
    assert error.value.code == code
    assert "DB::Exception" in error.value.message
    assert client.execute("SELECT 1") == [(1,)]


def test_insert_errors(client):
    """An INSERT of blocks into a missing table or column fails before data is sent."""
    client.execute("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
    for query, code in [("INSERT INTO absent VALUES", 60), ("INSERT INTO t (b) VALUES", 16)]:
        with pytest.raises(ServerException) as error:
            client.execute(query, [(1,)])
        assert error.value.code == code
    client.execute("ALTER TABLE t ADD CONSTRAINT small CHECK a < 10")
    with pytest.raises(ServerException) as error:
        client.execute("INSERT INTO t VALUES", [(n,) for n in range(20)])
    assert error.value.code == 469
    assert client.execute("SELECT count() FROM t") == [(0,)]


def test_rows_that_are_not_stored_are_never_acknowledged(client):
    """An error while rows are written is also reported: by a view, by partitions, by a default."""
    client.execute("CREATE TABLE t (a UInt8, b UInt8 DEFAULT throwIf(a = 2)) "
                   "ENGINE = MergeTree PARTITION BY a ORDER BY a")  # fmt: skip
    client.execute(
        "CREATE MATERIALIZED VIEW m ENGINE = MergeTree ORDER BY a AS SELECT throwIf(a = 3) + a AS a FROM t"
    )
    one_partition = {"max_partitions_per_insert_block": 1}
    for rows, settings, code in [([(2,)], {}, 395), ([(3,)], {}, 395), ([(4,), (5,)], one_partition, 252)]:
        with pytest.raises(ServerException) as error:
            client.execute("INSERT INTO t (a) VALUES", rows, settings=settings)
        assert error.value.code == code
    client.execute("INSERT INTO t (a) SETTINGS max_threads = 1 VALUES", [(6,)])
    assert client.execute("SELECT count() FROM t WHERE a IN (2, 4, 5)") == [(0,)]
    assert client.execute("SELECT a FROM t WHERE a = 6") == [(6,)]


def test_settings_of_a_query_end_with_it(client):
    """A query's settings hold for that query alone.

    A SET holds for the connection, and applies again after a query with other settings.
    """
    ask = "SELECT getSetting('max_threads'), getSetting('max_block_size')"
    threads, size = client.execute(ask)[0]
    assert client.execute(ask, settings={"max_threads": 1, "max_block_size": 777}) == [(1, 777)]
    assert client.execute(ask) == [(threads, size)]
    client.execute("SET max_block_size = 555")
    assert client.execute(ask, settings={"max_block_size": 777}) == [(threads, 777)]
    assert client.execute(ask) == [(threads, 555)]


def test_max_execution_time(client):
    """A query that exceeds its time limit ends with TIMEOUT_EXCEEDED."""
    with pytest.raises(ServerException) as error:
        client.execute("SELECT count() FROM numbers(100000000000) WHERE NOT ignore(sipHash64(number))",
                       settings={"max_execution_time": 1})  # fmt: skip
    assert error.value.code == 159


def test_deduplication_token(client):
    """A second INSERT with the same token adds no rows, not even to a materialized view.

    An INSERT with another token does.
    """
    client.execute("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a "
                   "SETTINGS non_replicated_deduplication_window = 100")  # fmt: skip
    client.execute("CREATE TABLE v (a UInt8) ENGINE = MergeTree ORDER BY a "
                   "SETTINGS non_replicated_deduplication_window = 100")  # fmt: skip
    client.execute("CREATE MATERIALIZED VIEW m TO v AS SELECT a FROM t")
    for token, row in [("one", 1), ("one", 2), ("two", 3)]:
        client.execute("INSERT INTO t VALUES", [(row,)], settings={"insert_deduplication_token": token})
    assert client.execute("SELECT a FROM t ORDER BY a") == [(1,), (3,)]
    assert client.execute("SELECT a FROM v ORDER BY a") == [(1,), (3,)]


def test_twelve_clients_at_once(database):
    """Twelve connections insert small batches and poll at the same time. Each sees its own rows."""
    with Client.from_url(database) as client:
        client.execute("CREATE TABLE t (who UInt8, n UInt32, s LowCardinality(String)) "
                       "ENGINE = MergeTree ORDER BY (who, n)")  # fmt: skip
    failures: list[BaseException] = []

    def work(who: int) -> None:
        try:
            with Client.from_url(database) as client:
                for batch in range(8):
                    client.execute("INSERT INTO t VALUES", [(who, batch * 10 + i, "x") for i in range(10)])
                    count = client.execute(f"SELECT count() FROM t WHERE who = {who}")
                    assert count == [(batch * 10 + 10,)]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with Client.from_url(database) as client:
        assert client.execute("SELECT count() FROM t") == [(12 * 80,)]


def test_cancel_ends_a_query_soon(client):
    """A client's Cancel ends a long query soon, and the connection serves the next one."""
    begin = time.monotonic()
    rows = client.execute_iter(
        "SELECT number FROM numbers(100000000000) WHERE sipHash64(number) % 100000 = 0"
    )
    next(rows)
    client.cancel()
    assert time.monotonic() - begin < STOP_S
    assert client.execute("SELECT 1") == [(1,)]


def test_tables_views_and_shows(client):
    """DDL and statements that describe tables work."""
    client.execute("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
    assert client.execute("SHOW TABLES") == [("t",)]
    assert client.execute("EXISTS TABLE t") == [(1,)]
    assert client.execute("DESCRIBE TABLE t")[0][:2] == ("a", "UInt8")
    client.execute("ALTER TABLE t ADD COLUMN b String DEFAULT 'x'")
    client.execute("INSERT INTO t VALUES", [(1, "y")])
    client.execute("TRUNCATE TABLE t")
    assert client.execute("SELECT a, b FROM t FORMAT JSON") == []
    client.execute("DROP TABLE t")
    assert client.execute("SHOW TABLES") == []
