"""Fixtures: an application, a collector and an Envoy with the real filter, once per test module."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from filter_harness.proxy import WASM, Setup
from filter_harness.stack import Stack, running


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    assert WASM.exists(), f"{WASM} is missing: build the filter, or set SPILLWAY_FILTER_WASM"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("envoy")) as stack:
        yield stack


@pytest.fixture
def lone(tmp_path) -> Iterator[Stack]:
    """A stack whose Envoy has a single worker, so that its spans arrive in order.

    A test can then conclude that a request left no span, once the spans of a later request are
    there.
    """
    with running(tmp_path, Setup(concurrency=1)) as stack:
        yield stack
