"""Lets the component tests import collector_process.py, which lies beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
