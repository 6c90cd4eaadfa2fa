"""Migration against a server: the contracts' schema, twice, and what it refuses."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clickhouse_driver import Client

pytestmark = pytest.mark.component

DDL = Path(__file__).resolve().parents[4] / "contracts" / "clickhouse"


def run(url: str, folder: Path, wait: str = "30") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "spillway_clickhouse.migrate", "--ddl", str(folder)],
        env=os.environ | {"SPILLWAY_CLICKHOUSE_URL": url, "SPILLWAY_CLICKHOUSE_WAIT": wait},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def new_database(database):
    """URL of a database that is not there yet."""
    with Client.from_url(database) as client:
        (name,) = client.execute("SELECT currentDatabase()")[0]
    with Client.from_url(database.replace(f"/{name}", "/")) as client:
        client.execute(f"DROP DATABASE {name}")
    yield database
    with Client.from_url(database.replace(f"/{name}", "/")) as client:
        client.execute(f"CREATE DATABASE IF NOT EXISTS {name}")  # `database` drops it


def test_contracts_apply_once(new_database):
    """All of contracts/clickhouse is accepted; a second run applies nothing; each file is recorded."""
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
    """A token counts in each table of the contracts: without the window a server ignores it silently."""
    assert run(new_database, DDL).returncode == 0
    with Client.from_url(new_database) as client:
        for name, create in client.execute(
            "SELECT name, create_table_query FROM system.tables "
            "WHERE database = currentDatabase() AND name != 'schema_migrations'"
        ):
            assert "deduplication_window" in create or "Replicated" in create, name


def test_a_changed_file_is_refused(new_database, tmp_path):
    """A file that changed after it was applied is named, and nothing of the folder is applied."""
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE a (x UInt8) ENGINE = MergeTree ORDER BY x;")
    assert run(new_database, tmp_path).returncode == 0
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE a (x UInt16) ENGINE = MergeTree ORDER BY x;")
    (tmp_path / "0002_b.sql").write_text("CREATE TABLE b (x UInt8) ENGINE = MergeTree ORDER BY x;")
    done = run(new_database, tmp_path)
    assert done.returncode == 1 and "0001_a.sql: changed" in done.stderr
    with Client.from_url(new_database) as client:
        assert client.execute("EXISTS TABLE b") == [(0,)]


def test_a_wrong_statement_names_its_file(new_database, tmp_path):
    """A statement that the server refuses stops there; what was before it stays applied."""
    shutil.copy(DDL / "0001_calls.sql", tmp_path)
    (tmp_path / "0002_wrong.sql").write_text("CREATE TABLE w (x Nonsense) ENGINE = MergeTree ORDER BY x;")
    done = run(new_database, tmp_path)
    assert done.returncode == 1 and "0002_wrong.sql: Code: 50" in done.stderr
    (tmp_path / "0002_wrong.sql").write_text("CREATE TABLE w (x UInt8) ENGINE = MergeTree ORDER BY x;")
    again = run(new_database, tmp_path)
    assert again.returncode == 0 and "applied 0002_wrong.sql" in again.stderr


def test_waits_for_a_bounded_time():
    """Without a server it says what it waits for, then gives up naming the address."""
    done = run("clickhouse://u:secret@127.0.0.1:1/spillway", DDL, wait="1")
    assert done.returncode == 1
    assert "waiting for ClickHouse at 127.0.0.1:1" in done.stderr
    assert "no ClickHouse at 127.0.0.1:1 after 1 s" in done.stderr
    assert "secret" not in done.stderr
