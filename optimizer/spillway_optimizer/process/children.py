"""What the optimizer's child processes have in common: their environment and their memory."""

import os
import resource
from contextlib import suppress
from pathlib import Path

_OOM_SCORE = Path("/proc/self/oom_score_adj")
_MORE, _MOST = 300, 1000  # thousandths of the memory that the container or the node has


def environment() -> dict[str, str]:
    """Returns a child's environment: ours without addresses and passwords, and one thread."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
    return ours | {"OPENBLAS_NUM_THREADS": "1"}


def limit_data(most_bytes: int) -> None:
    """Limits the data of this process, so that it fails alone.

    Otherwise the container's limit would end all of its processes.
    """
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = most_bytes if most == resource.RLIM_INFINITY else min(most_bytes, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def end_first() -> None:
    """Lets the kernel end this process before its parent where memory runs out."""
    with suppress(OSError):
        _OOM_SCORE.write_text(str(min(int(_OOM_SCORE.read_text()) + _MORE, _MOST)))
