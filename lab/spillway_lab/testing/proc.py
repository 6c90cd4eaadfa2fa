"""CPU time and memory of a process (proc(5))."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time in seconds of a process and its threads so far.

    These are fields 14 and 15 of stat.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mb(pid: int, what: str) -> float:
    """Returns a line of /proc/PID/status in MiB: VmRSS, the resident set, or VmHWM, its peak."""
    [line] = [row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith(what)]
    return int(line.split()[1]) / 1024
