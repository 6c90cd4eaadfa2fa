"""Where the real traces are."""

import os
from pathlib import Path

import pytest

_DEFAULT = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def hotel_reservation() -> list[Path]:
    """The six files of Hotel Reservation traces, by load."""
    folder = Path(os.environ.get("SPILLWAY_TRACE_DATA", _DEFAULT)) / "hotel-reservation"
    files = sorted(folder.glob("load*.json.gz"), key=lambda path: int(path.name[4:].split(".")[0]))
    if not files:
        pytest.skip(
            f"{folder}: no load*.json.gz; set SPILLWAY_TRACE_DATA to the folder that holds hotel-reservation"
        )
    return files
