"""The recorded traces, and the import path of tests.

Test files share helpers that are in the same folder.
"""

import sys
from pathlib import Path

import pytest
from spillway_lab.testing import recordings

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("unit", "component")]


@pytest.fixture(scope="session")
def hotel_reservation() -> list[Path]:
    """The six files of Hotel Reservation traces, in order of their load."""
    return recordings.hotel_reservation()
