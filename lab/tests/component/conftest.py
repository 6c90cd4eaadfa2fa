"""Lets the component tests import lab_processes.py from the same folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
