"""Runs backup and restore exactly as docs/operations.md gives them, on the engine."""

import json
import re
from pathlib import Path

import pytest
from clickhouse_driver import Client
from spillway_clickhouse.migrate import migrate

pytestmark = pytest.mark.component

ROOT = Path(__file__).resolve().parents[4]


def statements() -> list[str]:
    """Returns the SQL statements of the page's ```sql blocks, in order."""
    page = (ROOT / "docs" / "operations.md").read_text()
    return [block.strip().rstrip(";") for block in re.findall(r"```sql\n(.*?)```", page, re.S)]


def test_what_was_backed_up_comes_back_and_is_written_on(own_server):
    """A dropped and restored database has its rows, views and applied files again.

    A migration then has nothing to do, and inserts work.
    """
    backup, restore = statements()
    url, previous = own_server.url("spillway"), next((ROOT / "contracts/golden/previous").iterdir())
    migrate(url, ROOT / "contracts" / "clickhouse", 30)
    found = json.loads((previous / "inserts_streams.json").read_text())
    statement, rows = next(insert for insert in found if "INTO positions" in insert[0])
    with Client.from_url(own_server.url()) as client:
        client.execute(
            statement.replace("INTO positions", "INTO spillway.positions"), [tuple(r) for r in rows]
        )
        tables = client.execute(
            "SELECT name, engine FROM system.tables WHERE database = 'spillway' ORDER BY 1"
        )
        kept = client.execute("SELECT * FROM spillway.positions")
        client.execute(backup)
        client.execute("DROP DATABASE spillway SYNC")
        client.execute(restore)
        assert client.execute("SELECT * FROM spillway.positions") == kept != []
        assert tables == client.execute(
            "SELECT name, engine FROM system.tables WHERE database = 'spillway' ORDER BY 1"
        )
    assert migrate(url, ROOT / "contracts" / "clickhouse", 30) == []
    with Client.from_url(url) as client:
        later = [(*row[:-1], row[-1] + 1) for row in rows]
        client.execute(statement, later)
        assert client.execute("SELECT max(sequence) FROM positions FINAL") == [(later[0][-1],)]
