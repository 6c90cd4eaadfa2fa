"""How many cores and how much memory this process may use, by its affinity and its cgroups."""

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

_V2 = ""  # names of controllers in the line of a cgroup of version 2
_ROOT = Path("/")  # the folder that has `proc` and `sys`


def cores(root: Path = _ROOT) -> int:
    """Returns the cores that this process may use at the same time, at least 1.

    Part of a core counts as none.
    """
    return max(1, int(min([len(os.sched_getaffinity(0)), *_limits(root, "cpu", _quota)])))


def memory(root: Path = _ROOT) -> float:
    """Returns the bytes of memory that the cgroups of this process may use, inf: no limit."""
    return min(_limits(root, "memory", _most_bytes), default=float("inf"))


def _limits(root: Path, controller: str, read: Callable[[Path], float | None]) -> list[float]:
    return [found for folder in _folders(root, controller) if (found := read(folder)) is not None]


def _folders(root: Path, controller: str) -> list[Path]:
    """Returns the folders of this process's cgroups with the controller, and of those above them.

    In a container, the path of a cgroup may not exist below the mounted folder. The folders above
    it do.
    """
    folders = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        if not colon:
            continue  # sandboxes may imitate this file badly
        if names == _V2 or controller in names.split(","):
            inside = PurePosixPath(path.lstrip("/"))
            above = root / "sys/fs/cgroup" / ("" if names == _V2 else controller)
            folders += [above / inside, *(above / parent for parent in inside.parents)]
    return folders


def _quota(folder: Path) -> float | None:
    """Returns the cores that a cgroup may use at the same time, None: it sets no limit."""
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    if not period:
        quota = _read(folder / "cpu.cfs_quota_us").strip()
        period = _read(folder / "cpu.cfs_period_us").strip()
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):  # "max", or no such files
        return None


def _most_bytes(folder: Path) -> float | None:
    """Returns the bytes that a cgroup may use, None: it sets no limit.

    Version 1 has a number beyond any machine's memory in place of no limit.
    """
    text = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
    return float(text) if text.strip().isdecimal() else None


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
