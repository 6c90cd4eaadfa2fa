"""Where the real traces are; test files share helpers that lie beside them."""

import sys
from pathlib import Path

import pytest
from spillway_lab.testing import recordings

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("unit", "component")]


@pytest.fixture(scope="session")
def hotel_reservation() -> list[Path]:
    """The six files of Hotel Reservation traces, by load."""
    return recordings.hotel_reservation()
