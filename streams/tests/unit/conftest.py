"""What unit tests share."""

import pytest
from spillway_streams.counters import Counters


@pytest.fixture
def counters() -> Counters:
    return Counters()
