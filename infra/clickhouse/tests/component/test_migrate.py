"""Migration against a server: the contracts' schema, twice, and the errors."""

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from clickhouse_driver import Client

pytestmark = pytest.mark.component

DDL = Path(__file__).resolve().parents[4] / "contracts" / "clickhouse"


def run(url: str, folder: Path, *options: str, wait: str = "30") -> subprocess.CompletedProcess:
    """Runs the migration command on a folder."""
    return subprocess.run(
        [sys.executable, "-m", "spillway_clickhouse.migrate", "--ddl", str(folder), *options],
        env=os.environ | {"SPILLWAY_CLICKHOUSE_URL": url, "SPILLWAY_CLICKHOUSE_WAIT_S": wait},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def new_database(database):
    """The URL of a database that does not exist yet."""
    with Client.from_url(database) as client:
        (name,) = client.execute("SELECT currentDatabase()")[0]
    with Client.from_url(database.replace(f"/{name}", "/")) as client:
        client.execute(f"DROP DATABASE {name}")
    yield database
    with Client.from_url(database.replace(f"/{name}", "/")) as client:
        client.execute(f"CREATE DATABASE IF NOT EXISTS {name}")  # the fixture `database` drops it


def test_contracts_apply_once(new_database):
    """The server accepts all of contracts/clickhouse and records each file.

    A second run applies nothing.
    """
    files = sorted(path.name for path in DDL.glob("*.sql"))
    first = run(new_database, DDL)
    assert first.returncode == 0, first.stderr
    assert [line.split()[1] for line in first.stderr.splitlines() if line.startswith("applied")] == files
    second = run(new_database, DDL)
    assert second.returncode == 0 and "applied" not in second.stderr
    with Client.from_url(new_database) as client:
        recorded = [file for (file,) in client.execute("SELECT file FROM schema_migrations ORDER BY file")]
        assert recorded == files
        tables = {name for (name,) in client.execute("SHOW TABLES")}
    assert {"calls", "edges", "curves", "papa_steps"} < tables


def test_every_table_deduplicates(new_database):
    """Deduplication tokens work in each table of the contracts.

    A server silently ignores them for a table without the window.
    """
    assert run(new_database, DDL).returncode == 0
    with Client.from_url(new_database) as client:
        for name, create in client.execute(
            "SELECT name, create_table_query FROM system.tables "
            "WHERE database = currentDatabase() AND name != 'schema_migrations' AND engine != 'View'"
        ):
            assert "deduplication_window" in create or "Replicated" in create, name


def test_a_call_that_comes_again_in_another_class_is_one_call(new_database):
    """A call is sent again after a rule has merged its class, and replaces its first row.

    It is one call of the new class and none of the old one, also by the index on classes. The same
    holds for `edges`.
    """
    assert run(new_database, DDL).returncode == 0
    at = datetime.now(UTC)
    with Client.from_url(new_database) as client:
        for table, service in (("calls", "service"), ("edges", "source_service")):
            for class_id, spans in (("s GET /a", 2), ("s GET /{x}", 3)):
                client.execute(
                    f"INSERT INTO {table} (started_at, trace_id, span_id, {service}, class, trace_spans) VALUES",
                    [(at, "t", "s", "s", class_id, spans)],
                )
            counts = f"SELECT countIf(class = 's GET /a'), count() FROM {table} FINAL"
            assert client.execute(counts) == [(0, 1)], table
            assert client.execute(f"SELECT count() FROM {table} FINAL WHERE class = 's GET /a'") == [(0,)], (
                table
            )


def test_a_changed_file_is_refused(new_database, tmp_path):
    """A file that changed after it was applied is named, and no file of the folder is applied."""
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE a (x UInt8) ENGINE = MergeTree ORDER BY x;")
    assert run(new_database, tmp_path).returncode == 0
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE a (x UInt16) ENGINE = MergeTree ORDER BY x;")
    (tmp_path / "0002_b.sql").write_text("CREATE TABLE b (x UInt8) ENGINE = MergeTree ORDER BY x;")
    done = run(new_database, tmp_path)
    assert done.returncode == 1 and "0001_a.sql: changed" in done.stderr
    with Client.from_url(new_database) as client:
        assert client.execute("EXISTS TABLE b") == [(0,)]


def test_a_database_of_before_is_told_what_it_holds(new_database, tmp_path):
    """Old records have no column for the variant, and may name files that no longer exist.

    The error names such a file, instead of the missing column.
    """
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE a (x UInt8) ENGINE = MergeTree ORDER BY x;")
    assert run(new_database, tmp_path).returncode == 0
    (tmp_path / "0001_a.sql").rename(tmp_path / "0002_b.sql")
    with Client.from_url(new_database) as client:
        client.execute("ALTER TABLE schema_migrations DROP COLUMN variant", settings={"mutations_sync": 1})
    done = run(new_database, tmp_path)
    assert done.returncode == 1 and "0001_a.sql: was applied but is not in the folder" in done.stderr


def test_a_wrong_statement_names_its_file(new_database, tmp_path):
    """A refused statement ends the migration. Files before it stay applied."""
    shutil.copy(DDL / "0001_calls.sql", tmp_path)
    (tmp_path / "0002_wrong.sql").write_text("CREATE TABLE w (x Nonsense) ENGINE = MergeTree ORDER BY x;")
    done = run(new_database, tmp_path)
    assert done.returncode == 1 and "0002_wrong.sql: Code: 50" in done.stderr
    (tmp_path / "0002_wrong.sql").write_text("CREATE TABLE w (x UInt8) ENGINE = MergeTree ORDER BY x;")
    again = run(new_database, tmp_path)
    assert again.returncode == 0 and "applied 0002_wrong.sql" in again.stderr


def test_waits_for_a_bounded_time():
    """Without a server, the command names the address for which it waits, and then gives up."""
    done = run("clickhouse://u:secret@127.0.0.1:1/spillway", DDL, wait="1")
    assert done.returncode == 1
    assert "waiting for ClickHouse at 127.0.0.1:1" in done.stderr
    assert "no ClickHouse at 127.0.0.1:1 after 1 s" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--variant", "replicated"], "SPILLWAY_CLICKHOUSE_CLUSTER"),
        (["--cluster", "mesh"], "SPILLWAY_CLICKHOUSE_CLUSTER"),
        (["--variant", "replicated", "--cluster", "a'b"], "SPILLWAY_CLICKHOUSE_CLUSTER"),
    ],
)
def test_a_variant_and_its_cluster_go_together(options, expected):
    """The command ends with 64 when variant and cluster do not match or the name is invalid."""
    done = run("clickhouse://u:p@127.0.0.1:1/spillway", DDL, *options)
    assert done.returncode == 64 and expected in done.stderr


def test_a_database_keeps_its_variant(new_database):
    """A database with tables of another variant is refused."""
    assert run(new_database, DDL).returncode == 0
    with Client.from_url(new_database) as client:
        client.execute("ALTER TABLE schema_migrations UPDATE variant = 'replicated' WHERE 1",
                       settings={"mutations_sync": 1})  # fmt: skip
    done = run(new_database, DDL)
    assert done.returncode == 1 and "was made as replicated" in done.stderr
