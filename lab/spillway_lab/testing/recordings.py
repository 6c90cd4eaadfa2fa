"""Recorded traces, which are no part of the repository: tests read them where they are."""

import os
import warnings
from pathlib import Path

import pytest

from spillway_lab.testing.servers import ROOT


def hotel_reservation() -> list[Path]:
    """Files of the Hotel Reservation traces, a file per load, sorted by load. Without any file the test is skipped."""
    folder = (
        Path(os.environ.get("SPILLWAY_TRACE_DATA", ROOT.parent / "shared" / "data")) / "hotel-reservation"
    )
    files = sorted(folder.glob("load*.json.gz"), key=lambda path: int(path.name[4:].split(".")[0]))
    if not files:
        # A warning, because a skip alone is a letter among dots.
        reason = (
            f"tests on real traces are NOT RUN: no load*.json.gz in {folder}; SPILLWAY_TRACE_DATA names the folder "
            "that holds hotel-reservation"
        )
        warnings.warn(reason, stacklevel=2)
        pytest.skip(reason)
    return files
