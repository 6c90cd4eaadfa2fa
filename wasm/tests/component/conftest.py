"""One application, one collector and one Envoy with the real filter, for all tests of a module."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from filter_harness import app as application
from filter_harness.collector import Collector
from filter_harness.proxy import WASM, Proxy, free_ports


@dataclass
class Stack:
    proxy: Proxy
    collector: Collector
    collector_port: int
    app_port: int


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    assert WASM.exists(), f"{WASM} is missing: build the filter, or set SPILLWAY_FILTER_WASM"
    app_port, collector_port = free_ports(2)
    app = application.start(app_port)
    collector = Collector(collector_port)
    proxy = Proxy(tmp_path_factory.mktemp("envoy"), app_port, collector_port, {})
    yield Stack(proxy, collector, collector_port, app_port)
    proxy.stop()
    collector.stop()
    app.shutdown()
