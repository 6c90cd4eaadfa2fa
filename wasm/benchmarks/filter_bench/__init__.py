"""What `make bench-filter` measures with."""

import sys
from pathlib import Path

# Ports and pieces of Envoy's configuration are those of the component tests.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/component"))
