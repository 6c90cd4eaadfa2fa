"""Fixtures shared by the unit tests."""

import pytest
from spillway_streams.process.counters import Counters


@pytest.fixture
def counters() -> Counters:
    return Counters()
