"""How long the threads of processes wait for a core: the kernel's run delay.

Pressure counts every process of the machine. Streams, optimizer and servers of the local stack run
with a lower priority, and no request waits for them. The run delay of the processes that serve
requests shows what the machine adds to a request.

`read` reads /proc/PID/task/TID/schedstat, whose second field is the time in ns that a thread was
ready to run and did not (Documentation/scheduler/sched-stats.rst).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

Delays = Mapping[tuple[int, int], int]  # (process id, thread id) -> ns since the thread's start
_DELAY = 1


def read(pids: Iterable[int], folder: Path = Path("/proc")) -> Delays:
    """Returns the run delay of every thread. A kernel without these counters gives none."""
    found = {}
    for pid in pids:
        for file in folder.glob(f"{pid}/task/[0-9]*/schedstat"):
            try:
                fields = file.read_text().split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread ended meanwhile
            if len(fields) > _DELAY and fields[_DELAY].isdecimal():
                found[pid, int(file.parent.name)] = int(fields[_DELAY])
    return found


def between(before: Delays, after: Delays) -> float | None:
    """Returns the seconds that the threads waited between two readings. None: not known.

    Threads that ended in between count until the first reading only. Those of processes that serve
    requests live as long as the process.
    """
    if not after:
        return None
    return sum(max(0, delay - before.get(thread, 0)) for thread, delay in after.items()) / 1e9
