"""The environment that one collector needs, for the unit tests of the launcher and the component tests."""

import os
from pathlib import Path

import pytest

BOX = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """This process's environment without anything of ours, the built collector first in PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
    return kept | {"PATH": f"{BOX.parent / '.spillway' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
