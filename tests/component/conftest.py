"""Programs that check charts, and the HotelReservation traces as rows with expected values."""

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from clickhouse_driver import Client
from spillway_clickhouse.migrate import migrate
from spillway_lab.commands.sql import FOLDER
from spillway_lab.report import questions
from spillway_lab.testing.servers import ROOT, clickhouse_server

sys.path.insert(0, str(Path(__file__).parent))
import charts
import hotel
import hotel_control
import hotel_rows
from hotel import Call, Made, recorded


@pytest.fixture(scope="session")
def chart_tools() -> None:
    """helm, kubeconform and the schemas are installed."""
    charts.build()


@pytest.fixture(scope="session")
def hotel_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a migrated database, by default on a server of its own.

    SPILLWAY_CLICKHOUSE_TEST_URL names another server to create it on.
    """
    given = os.environ.get("SPILLWAY_CLICKHOUSE_TEST_URL")
    if not given:
        with clickhouse_server(tmp_path_factory.mktemp("clickhouse")) as server:
            yield server
        return
    name = "cookbook_" + secrets.token_hex(4)
    there = urlunsplit(urlsplit(given)._replace(path=f"/{name}"))
    migrate(there, ROOT / "contracts" / "clickhouse", 30)
    yield there
    with Client.from_url(given) as client:
        client.execute(f"DROP DATABASE {name}")


@pytest.fixture(scope="session")
def hotel_client(hotel_url: str) -> Iterator[Client]:
    with Client.from_url(hotel_url) as client:
        hotel_rows.store(client)
        hotel_control.store(client)
        yield client


@pytest.fixture(scope="session")
def calls() -> tuple[Call, ...]:
    return hotel.calls()


@pytest.fixture(scope="session")
def made() -> tuple[Made, ...]:
    return hotel.made()


@pytest.fixture
def ask(hotel_client: Client) -> Callable[..., list[dict]]:
    """Returns ask(question, **parameters), which gives a question's rows as dicts.

    start and end default to the whole recording.
    """

    def _ask(name: str, **values: object) -> list[dict]:
        question = questions.read(FOLDER / f"{name}.sql")
        whole = {k: v for k, v in recorded().items() if k in question.parameters}
        columns, rows = questions.ask(hotel_client, FOLDER / f"{name}.sql", whole | values)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    return _ask
