"""The kernel's limit that a stack with many Envoys meets first."""

from pathlib import Path

from spillway_lab.scenario.errors import LabError

_LIMIT = "fs.inotify.max_user_instances"
# Each Envoy watches the files of its certificates, and the 34th aborts with the limit 128.
_PER_ENVOY = 4


def check(envoys: int, proc: Path = Path("/proc/sys")) -> None:
    """Raises LabError if the kernel allows fewer inotify instances than so many Envoys need.

    Where the kernel has no such limit, nothing is checked.
    """
    needed = envoys * _PER_ENVOY
    try:
        allowed = int((proc / _LIMIT.replace(".", "/")).read_text())
    except FileNotFoundError:
        return
    if allowed < needed:
        raise LabError(
            f"{_LIMIT} is {allowed}, and {envoys} Envoys need {needed}; "
            f"raise it with: sudo sysctl -w {_LIMIT}={max(1024, needed)}"
        )
