"""Modules of `make bench-filter`."""

import sys
from pathlib import Path

# Ports and parts of Envoy's configuration are shared with the component tests.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/component"))
