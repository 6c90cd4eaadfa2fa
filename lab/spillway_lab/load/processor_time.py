"""Processor time of a stack's processes by job, with their children and across restarts.

`read` reads proc(5). `Account` adds up what readings show, and is pure.
"""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat, counted from the one after the name: state is field 0.
_PARENT, _USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM, _STARTED = 1, 11, 12, 13, 14, 19
_MODULE = "-m"
ENDED = " (ended children)"

Identity = tuple[int, int]  # process id and start, because process ids are used again
Name = tuple[str, str]  # job and name of the process


@dataclass(frozen=True)
class Usage:
    """What one process has used so far, in seconds of one processor.

    `started`: clock ticks from the boot to the start of the process. `own_s` includes all threads.
    `ended_s`: of children that ended and were waited for, with theirs.
    """

    pid: int
    started: int
    parent: int
    name: str
    own_s: float
    ended_s: float

    @property
    def identity(self) -> Identity:
        return self.pid, self.started

    @property
    def total_s(self) -> float:
        return self.own_s + self.ended_s


def parse(pid: int, stat: str, arguments: list[str]) -> Usage:
    """Returns the usage in the text of /proc/PID/stat. `arguments`: of /proc/PID/cmdline."""
    before, _, after = stat.rpartition(")")  # a name may contain parentheses and spaces
    fields = after.split()
    return Usage(
        pid=pid,
        started=int(fields[_STARTED]),
        parent=int(fields[_PARENT]),
        name=_name(before.partition("(")[2], arguments),
        own_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS,
        ended_s=(int(fields[_ENDED_USER]) + int(fields[_ENDED_SYSTEM])) / _TICKS,
    )


def _name(command: str, arguments: list[str]) -> str:
    """Returns the kernel's name of the process, or the module that a Python runs."""
    if _MODULE in arguments[:-1] and command.startswith("python"):
        return f"python {arguments[arguments.index(_MODULE) + 1]}"
    return command


def read(folder: Path = Path("/proc")) -> dict[int, Usage]:
    """Returns the usage of every process of this machine by process id."""
    found = {}
    for entry in folder.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat, arguments = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process ended meanwhile
        pid = int(entry.name)
        found[pid] = parse(pid, stat, arguments.decode(errors="replace").split("\0"))
    return found


class Account:
    """Seconds by job and process name since the first reading.

    Each call to `take` must carry a later reading than the previous one. What a process used
    between the last reading and its end is known only to its parent, and is counted as the parent's
    ended children.
    """

    def __init__(self) -> None:
        self.spent_s: dict[Name, float] = defaultdict(float)
        self._before: dict[Identity, Usage] = {}
        self._jobs: dict[Identity, str] = {}
        self._has_begun = False

    def take(self, processes: Mapping[int, Usage], roots: Mapping[int, str]) -> None:
        """Adds what was used since the previous reading.

        `roots`: process id -> job. A process belongs to the job of its nearest ancestor among them.
        Processes below none of them are left out.
        """
        now = {usage.identity: usage for usage in processes.values()}
        jobs = {identity: self._job(usage, processes, roots) for identity, usage in now.items()}
        self._jobs = {identity: job for identity, job in jobs.items() if job is not None}
        if self._has_begun:
            gone = self._gone(now)
            for identity, job in self._jobs.items():
                self._grow(job, now[identity], gone.get(identity, 0.0))
        self._before, self._has_begun = now, True

    def _job(self, usage: Usage, processes: Mapping[int, Usage], roots: Mapping[int, str]) -> str | None:
        """Returns the job of a process. An orphan and its children keep the job that they had."""
        previous: str | None = None
        at: Usage | None = usage
        while at is not None:
            if at.pid in roots:
                return roots[at.pid]
            previous = previous or self._jobs.get(at.identity)
            at = processes.get(at.parent)
        return previous

    def _gone(self, now: Mapping[Identity, Usage]) -> dict[Identity, float]:
        """Returns, by living ancestor, what its ended descendants had used at the last reading.

        That much of the growth of the ancestor's `ended_s` is already counted.
        """
        pids = {usage.pid: usage for usage in self._before.values()}
        found: dict[Identity, float] = defaultdict(float)
        for identity, usage in self._before.items():
            if identity in now:
                continue
            parent = pids.get(usage.parent)
            while parent is not None and parent.identity not in now:
                parent = pids.get(parent.parent)
            if parent is not None:
                found[parent.identity] += usage.total_s
        return found

    def _grow(self, job: str, usage: Usage, gone_s: float) -> None:
        before = self._before.get(usage.identity)
        own_s, ended_s = (before.own_s, before.ended_s) if before else (0.0, 0.0)
        self.spent_s[job, usage.name] += max(usage.own_s - own_s, 0.0)
        # Less than nothing where a child was not waited for, whose time then is nowhere.
        if (more_s := usage.ended_s - ended_s - gone_s) > 0:
            self.spent_s[job, usage.name + ENDED] += more_s
