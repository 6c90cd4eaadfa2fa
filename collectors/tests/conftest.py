"""The environment of one collector, for the launcher's unit tests and the component tests."""

import os
from pathlib import Path

import pytest

BOX = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """Returns this process's environment without SPILLWAY_ variables.

    The built collector is first in PATH.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
    return kept | {"PATH": f"{BOX.parent / '.spillway' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
