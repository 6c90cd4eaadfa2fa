"""One version of skew at the database.

The previous version creates it, today's version migrates it, and both write to it.
"""

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from clickhouse_driver import Client
from spillway_clickhouse.migrate import migrate

pytestmark = pytest.mark.component

CONTRACTS = Path(__file__).resolve().parents[4] / "contracts"
[PREVIOUS] = (CONTRACTS / "golden" / "previous").iterdir()
WAIT_S = 30
BOOKKEEPING = {"schema_migrations"}  # belongs to the migration
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")


def value(stored: object) -> object:
    """Parses a time, which is text in the golden files. Returns other values unchanged."""
    if isinstance(stored, str) and _TIME.match(stored):
        return datetime.fromisoformat(stored).replace(tzinfo=UTC)
    return stored


def inserts() -> list[tuple[str, list[tuple]]]:
    """Returns the statements of the previous version with their rows."""
    found = []
    for path in sorted(PREVIOUS.glob("inserts_*.json")):
        for statement, rows in json.loads(path.read_text()):
            found.append((statement, [tuple(map(value, row)) for row in rows]))
    return found


def counts(client: Client) -> dict[str, int]:
    """Returns the number of rows of each table to which the previous version writes."""
    tables = [re.match(r"INSERT INTO (\w+)", statement)[1] for statement, _ in inserts()]
    return {table: client.execute(f"SELECT count() FROM {table}")[0][0] for table in tables}


def write(client: Client) -> None:
    """Runs all inserts of the previous version."""
    for statement, rows in inserts():
        assert rows, statement
        client.execute(statement, rows)


def test_a_database_of_the_previous_version_is_migrated_with_its_rows(database):
    """Today's files continue from the previous version's tables.

    Its rows stay, and its statements still work.
    """
    made = migrate(database, PREVIOUS / "clickhouse", WAIT_S)
    assert made == sorted(path.name for path in (PREVIOUS / "clickhouse").iterdir())
    with Client.from_url(database) as client:
        write(client)
        before = counts(client)
        assert all(before.values())
        tables = (
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
        )
        assert {name for (name,) in client.execute(tables)} - BOOKKEEPING == set(before)
        rows = client.execute("SELECT * FROM calls ORDER BY ALL")
    today = {path.name for path in (CONTRACTS / "clickhouse").glob("*.sql")}
    assert set(migrate(database, CONTRACTS / "clickhouse", WAIT_S)) == today - set(made)
    with Client.from_url(database) as client:
        assert counts(client) == before
        known = [row[: len(rows[0])] for row in client.execute("SELECT * FROM calls ORDER BY ALL")]
        assert known == rows
        client.execute("TRUNCATE TABLE calls")
        write(client)
        assert client.execute("SELECT count() FROM calls")[0][0] == before["calls"]


def test_a_column_that_is_added_is_no_matter_to_who_does_not_know_it(database, tmp_path):
    """Jobs of the previous version still insert after a migration that adds columns.

    Their statements name their columns.
    """
    folder = Path(shutil.copytree(CONTRACTS / "clickhouse", tmp_path / "ddl"))
    for number, table in enumerate(("calls", "curves", "rules", "positions"), 9000):
        (folder / f"{number}_{table}.sql").write_text(
            f"ALTER TABLE {table} ADD COLUMN added_tomorrow String DEFAULT 'x';"
        )
    migrate(database, folder, WAIT_S)
    with Client.from_url(database) as client:
        write(client)
        assert all(counts(client).values())
        assert client.execute("SELECT DISTINCT added_tomorrow FROM rules") == [("x",)]
