"""Fixtures: one broker and one collector for each test file.

Makes the neighbouring modules importable.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from spillway_lab.testing import servers
from spillway_lab.testing.kafka import kafka_process

sys.path.insert(0, str(Path(__file__).parent))

from collector_process import Collector, collector


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def broker(data) -> Iterator[servers.Server]:
    with kafka_process(data) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(broker) -> str:
    return broker.url


@pytest.fixture(scope="module")
def running(tmp_path_factory, kafka, clean_environment) -> Iterator[Collector]:
    running = collector(tmp_path_factory.mktemp("collector"), kafka, clean_environment)
    running.server.start()
    yield running
    running.server.stop()
