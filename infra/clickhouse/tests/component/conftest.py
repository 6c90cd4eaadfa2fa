"""Fixtures: servers and clients. Store tests use SPILLWAY_CLICKHOUSE_TEST_URL when it is set."""

import importlib.util
import os
import secrets
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from clickhouse_driver import Client

_spec = importlib.util.spec_from_file_location(
    "server_process", Path(__file__).with_name("server_process.py")
)
server_process = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(server_process)


@pytest.fixture(scope="session")
def make_server():
    """Returns a function that makes a server in a folder, not started."""
    return server_process.ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """An embedded server for all tests that do not stop it."""
    process = server_process.ServerProcess(tmp_path_factory.mktemp("clickhouse"))
    process.start()
    yield process
    process.end()


@pytest.fixture
def own_server(tmp_path):
    """An embedded server for one test, which may kill it and start it again."""
    process = server_process.ServerProcess(tmp_path)
    process.start()
    yield process
    process.end()


@pytest.fixture(scope="session")
def server_url(request):
    """The URL of the server under test, without a database."""
    given = os.environ.get("SPILLWAY_CLICKHOUSE_TEST_URL")
    if given:
        return urlunsplit(urlsplit(given)._replace(path="/", query=""))
    return request.getfixturevalue("server").url()


@pytest.fixture
def database(server_url):
    """A fresh database, dropped at the end. The value is a URL that names it."""
    name = "test_" + secrets.token_hex(4)
    with Client.from_url(server_url) as client:
        client.execute(f"CREATE DATABASE {name}")
    yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    with Client.from_url(server_url) as client:
        client.execute(f"DROP DATABASE {name}")


@pytest.fixture(params=["lz4", "off"])
def client(request, database):
    """A client in a fresh database, once with block compression and once without."""
    options = "?compression=lz4" if request.param == "lz4" else ""
    with Client.from_url(database.partition("?")[0] + options) as client:
        yield client
