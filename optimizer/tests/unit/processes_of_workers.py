"""What tests of worker processes share: their PYTHONPATH, and whether a process has ended."""

import os
import time
from pathlib import Path

HERE = Path(__file__).parent
WAIT_S = 120.0  # for a worker to start on a busy machine


def python_path() -> str:
    """PYTHONPATH with the policies of this folder, for worker processes."""
    return os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])


def gone(pid: int, within_s: float = 20.0) -> bool:
    """Returns whether a process has ended, or ends soon."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":  # ended, and its new parent has not noticed yet
            return True
        time.sleep(0.05)
    return False
