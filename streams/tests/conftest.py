"""Where the real traces are; test files share helpers that lie beside them."""

import os
import sys
import warnings
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("unit", "component")]
_DEFAULT = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def hotel_reservation() -> list[Path]:
    """The six files of Hotel Reservation traces, by load."""
    folder = Path(os.environ.get("SPILLWAY_TRACE_DATA", _DEFAULT)) / "hotel-reservation"
    files = sorted(folder.glob("load*.json.gz"), key=lambda path: int(path.name[4:].split(".")[0]))
    if not files:
        # A warning, because a skip alone is a letter among dots.
        reason = (
            f"tests on real traces are NOT RUN: no load*.json.gz in {folder}; SPILLWAY_TRACE_DATA names the folder "
            "that holds hotel-reservation"
        )
        warnings.warn(reason, stacklevel=1)
        pytest.skip(reason)
    return files
