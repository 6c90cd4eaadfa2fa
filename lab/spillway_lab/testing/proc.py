"""What a process has used (proc(5))."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process and its threads so far (fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mb(pid: int, what: str) -> float:
    """A line of status: VmRSS, the resident set now; VmHWM, the largest that it was."""
    [line] = [row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith(what)]
    return int(line.split()[1]) / 1024
