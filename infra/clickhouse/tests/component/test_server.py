"""Properties of the embedded server: passwords, limits, refusals, its end and its restart."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import Error, ServerException
from spillway_lab.testing.waiting import STOP_S, eventually

pytestmark = pytest.mark.component

EXTERNAL = {"name": "e", "structure": [("a", "UInt8")], "data": [(1,)]}


@pytest.mark.parametrize(("user", "password"), [("tester", "wrong"), ("other", None), ("tester", "")])
def test_wrong_password(server, user, password):
    """A wrong user or password gets AUTHENTICATION_FAILED, and no query runs."""
    given = server.password if password is None else password
    client = Client("127.0.0.1", server.port, user=user, password=given)
    with pytest.raises(ServerException) as error:
        client.execute("SELECT 1")
    assert error.value.code == 516


def test_absent_database(server):
    """A missing database is error 81, until the same connection creates it."""
    with Client.from_url(server.url("later")) as client:
        with pytest.raises(ServerException) as error:
            client.execute("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
        assert error.value.code == 81
        client.execute("CREATE DATABASE later")
        client.execute("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
        assert client.execute("SELECT currentDatabase()") == [("later",)]
        client.execute("DROP DATABASE later")


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("SELECT 1 AS a, count() GROUP BY a WITH TOTALS", {}),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", {}),
        ("SELECT 1", {"settings": {"extremes": 1}}),
        ("SELECT * FROM e", {"external_tables": [EXTERNAL]}),
        ("SELECT sumState(number) FROM numbers(3)", {}),
        ("INSERT INTO FUNCTION null('a UInt8') VALUES", {"params": [(1,)]}),
    ],
)  # fmt: skip
def test_unsupported_is_said(server, query, options):
    """Unsupported queries are NOT_IMPLEMENTED with the reason, and the client can continue."""
    with Client.from_url(server.url()) as client:
        with pytest.raises(ServerException) as error:
            client.execute(query, **options)
        assert error.value.code == 48
        assert "not supported by the embedded engine's server" in error.value.message
        assert client.execute("SELECT 1") == [(1,)]


def test_unknown_setting(server):
    """An unknown setting is an error if the client marks it as important, as with other servers.

    Otherwise it is ignored.
    """
    with Client.from_url(server.url()) as client:
        assert client.execute("SELECT 1", settings={"no_such_setting": 1}) == [(1,)]
    with (
        Client.from_url(server.url(settings_is_important="1")) as client,
        pytest.raises(ServerException) as error,
    ):
        client.execute("SELECT 1", settings={"no_such_setting": 1})
    assert error.value.code == 115


def test_settings_of_a_query_are_of_that_query(server):
    """A query's settings hold for that query alone, but a client's SET holds from then on."""

    def threads(client, **settings):
        [[value]] = client.execute("SELECT toString(getSetting('max_threads'))", settings=settings)
        return value

    with Client.from_url(server.url()) as client:
        default = threads(client)
        assert [threads(client, max_threads=7), threads(client, max_threads=7)] == ["7", "7"]
        assert [threads(client), threads(client, max_threads=6), threads(client)] == [default, "6", default]
        client.execute("SET max_threads = 5", settings={"max_threads": 8})
        assert [threads(client), threads(client, max_threads=4), threads(client)] == ["5", "4", "5"]
        zone = {"session_timezone": "UTC"}
        client.execute("SET TIME ZONE 'Asia/Tokyo'", settings=zone)
        assert client.execute("SELECT timezone()", settings=zone) == [("UTC",)]
        client.execute("SELECT 1", settings={"readonly": 1})  # no later statement can reset this
    with Client.from_url(server.url()) as client:
        assert threads(client, readonly=1) == default
        with pytest.raises((Error, EOFError, OSError)):
            client.execute("SELECT 1")
        assert client.execute("SELECT 1") == [(1,)]


def test_an_insert_sees_that_another_client_changed_its_table(server):
    """After ALTER, DROP or CREATE by another client, an INSERT uses the table's new columns."""
    with Client.from_url(server.url()) as client, Client.from_url(server.url()) as other:
        other.execute("CREATE TABLE IF NOT EXISTS changing (a UInt8) ENGINE = MergeTree ORDER BY a")
        client.execute("INSERT INTO changing VALUES", [(1,)])
        other.execute("ALTER TABLE changing ADD COLUMN b String")
        client.execute("INSERT INTO changing VALUES", [(2, "two")])
        other.execute("DROP TABLE changing")
        with pytest.raises(ServerException) as error:
            client.execute("INSERT INTO changing VALUES", [(3, "three")])
        assert error.value.code == 60
        other.execute("CREATE TABLE changing (a String) ENGINE = MergeTree ORDER BY a")
        client.execute("INSERT INTO changing VALUES", [("four",)])
        assert other.execute("SELECT a FROM changing") == [("four",)]
        other.execute("DROP TABLE changing")


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x00\xff\xff\xff\xff\x7f", b""]
)
def test_garbage_does_no_harm(server, garbage):
    """Bytes that are not the protocol end only their own connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as raw:
        raw.sendall(garbage)
        raw.shutdown(socket.SHUT_WR)
        raw.settimeout(15)
        while raw.recv(4096):
            pass
    with Client.from_url(server.url()) as client:
        assert client.execute("SELECT 1") == [(1,)]


def test_a_client_that_leaves_stops_its_query(server):
    """A query whose client has left is killed soon."""
    query = "SELECT count() FROM numbers(100000000000) WHERE NOT ignore(sipHash64(number))"
    gone = Client.from_url(server.url())
    thread = threading.Thread(target=_ignore_errors, args=(gone, query))
    thread.start()
    with Client.from_url(server.url()) as client:
        count = (
            "SELECT count() FROM system.processes "
            "WHERE query LIKE '%NOT ignore%' AND query NOT LIKE '%processes%'"
        )
        eventually(lambda: client.execute(count) == [(1,)], "the query runs")
        gone.connection.socket.shutdown(socket.SHUT_RDWR)
        eventually(lambda: client.execute(count) == [(0,)], "the query is gone")
    thread.join()


def test_a_slow_client_blocks_nobody(server):
    """A client that does not read its result does not slow down the others."""
    slow = Client.from_url(server.url())
    rows = slow.execute_iter("SELECT number, toString(number) FROM numbers(50000000)")
    next(rows)
    try:
        with Client.from_url(server.url()) as client:
            begin = time.monotonic()
            for _ in range(20):
                client.execute("SELECT sum(number) FROM numbers(1000)")
            assert time.monotonic() - begin < STOP_S
    finally:
        slow.disconnect()


def test_kill_loses_no_acknowledged_row(own_server):
    """After SIGKILL during inserts, every acknowledged batch exists, a repeated one only once."""
    client = Client.from_url(own_server.url())
    client.execute("CREATE DATABASE kept")
    client.execute("CREATE TABLE kept.t (batch UInt32, n UInt32) ENGINE = MergeTree ORDER BY (batch, n) "
                   "SETTINGS non_replicated_deduplication_window = 1000")  # fmt: skip
    acknowledged: list[int] = []
    tried: list[int] = []

    def insert() -> None:
        try:
            for batch in range(100_000):
                tried.append(batch)
                _insert(client, batch)
                acknowledged.append(batch)
        except (Error, OSError, EOFError):
            pass  # the server was killed

    thread = threading.Thread(target=insert)
    thread.start()
    eventually(lambda: len(acknowledged) >= 20, "acknowledged batches")
    own_server.end(signal.SIGKILL)
    thread.join()
    own_server.start()
    with Client.from_url(own_server.url()) as again:
        count = "SELECT batch, count() FROM kept.t GROUP BY batch"
        found = dict(again.execute(count))
        assert all(found.get(batch) == 50 for batch in acknowledged)
        # a writer repeats a batch after a failure, whether or not it was acknowledged
        _insert(again, tried[-1])
        stored = dict(again.execute(count))
        # If the engine is killed after it notes a token and before it keeps the part, it knows only
        # the token. A batch is never stored twice.
        kept = tried if tried[-1] in stored or tried[-1] in acknowledged else tried[:-1]
        assert stored == dict.fromkeys(kept, 50)


def _insert(client: Client, batch: int) -> None:
    rows = [(batch, n) for n in range(50)]
    client.execute("INSERT INTO kept.t VALUES", rows, settings={"insert_deduplication_token": f"b{batch}"})


def test_ends_cleanly_when_asked(own_server):
    """SIGTERM ends the server even during a long query, with code 1 if the query was cut off.

    The server then starts again on its data.
    """
    busy = Client.from_url(own_server.url())
    query = "SELECT count() FROM numbers(100000000000) WHERE NOT ignore(sipHash64(number))"
    thread = threading.Thread(target=_ignore_errors, args=(busy, query))
    thread.start()
    with Client.from_url(own_server.url()) as client:
        client.execute("CREATE DATABASE kept")
    assert own_server.end(signal.SIGTERM) in (0, 1)
    thread.join()
    own_server.start()
    with Client.from_url(own_server.url("kept")) as client:
        assert client.execute("SELECT currentDatabase()") == [("kept",)]


def test_ends_cleanly_while_it_starts(own_server):
    """SIGTERM before the engine is ready also ends the server in order, with code 0."""
    own_server.end()
    own_server.launch()
    eventually(lambda: own_server.health() != 0, "the health endpoint answers")
    assert own_server.end(signal.SIGTERM) == 0


def test_wrong_configuration_names_each_key(server):
    """Missing and wrong variables end the start with 64, and each is named."""
    wrong = server.environment | {"SPILLWAY_CLICKHOUSE_LISTEN": "nowhere", "SPILLWAY_CLICKHOUSE_PASSWORD": ""}
    del wrong["SPILLWAY_CLICKHOUSE_USER"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")} | wrong
    done = subprocess.run(
        [sys.executable, "-m", "spillway_clickhouse.server"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 64
    for key in ("CLICKHOUSE_USER", "CLICKHOUSE_PASSWORD", "CLICKHOUSE_LISTEN"):
        assert f"SPILLWAY_{key}:" in done.stderr


def _ignore_errors(client: Client, query: str) -> None:
    try:
        client.execute(query)
    except (Error, OSError, EOFError):
        pass


def test_small_inserts_do_not_have_a_small_table_merged_again_and_again(own_server):
    """Small inserts do not make the engine merge all rows again and again.

    With 100 inserts per second, such merges would be most of the engine's work.
    """
    with Client.from_url(own_server.url()) as client:
        client.execute("CREATE TABLE small (a UInt64, s String) ENGINE = MergeTree ORDER BY a")
        for first in range(0, 5000, 50):
            rows = [(number, "x" * 20) for number in range(first, first + 50)]
            client.execute("INSERT INTO small VALUES", rows)
        [(merged,)] = client.execute("SELECT value FROM system.events WHERE event = 'MergedRows'") or [(0,)]
        assert client.execute("SELECT count() FROM small") == [(5000,)]
        assert merged < 5 * 5000
