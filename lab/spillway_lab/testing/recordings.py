"""Recorded traces, which are not part of the repository. Tests read them from a separate folder."""

import os
import warnings
from pathlib import Path

import pytest

from spillway_lab.testing.servers import ROOT


def hotel_reservation() -> list[Path]:
    """Returns the Hotel Reservation trace files, one per load, sorted by load.

    Skips the test when there are none.
    """
    folder = (
        Path(os.environ.get("SPILLWAY_TRACE_DATA", ROOT.parent / "shared" / "data")) / "hotel-reservation"
    )
    files = sorted(folder.glob("load*.json.gz"), key=lambda path: int(path.name[4:].split(".")[0]))
    if not files:
        # A skip alone would be only one letter in the test output, so a warning is issued too.
        reason = (
            f"tests on real traces are NOT RUN: no load*.json.gz in {folder}; SPILLWAY_TRACE_DATA names the folder "
            "that holds hotel-reservation"
        )
        warnings.warn(reason, stacklevel=2)
        pytest.skip(reason)
    return files
