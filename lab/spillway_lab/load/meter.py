"""Measures what the processes of a running stack use of the processors, for as long as a block."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from spillway_lab.load import machine, processor_time
from spillway_lab.load.machine import Busyness
from spillway_lab.load.processor_time import Account, Name, Usage
from spillway_lab.load.repeating import repeating
from spillway_lab.stack.supervisor import Supervisor

SUPERVISOR, LAB = "supervisor", "lab"  # jobs that the supervisor does not list: itself, and this process
_PERIOD_S = 1.0  # a process that ends is counted by name up to this long before its end


@dataclass
class Measured:
    """How long was measured, the cores that each process used meanwhile, and the machine."""

    seconds: float = 0.0
    cores: Mapping[Name, float] = field(default_factory=dict)
    machine: Busyness = Busyness(1, None, None)

    def by_job(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for (job, _), cores in self.cores.items():
            found[job] = found.get(job, 0.0) + cores
        return found


class Roots:
    """Process ids of the stack's jobs.

    They are read from the supervisor again after one has ended, until all jobs run again. While the
    supervisor does not answer, those of the last answer count.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor, self._jobs = supervisor, dict[int, str]()
        self._complete = False

    def among(self, processes: Mapping[int, Usage]) -> dict[int, str]:
        """Returns process id -> job, for these processes of the machine."""
        if not self._complete or not self._jobs.keys() <= processes.keys():
            self._read(processes)
        return {**self._jobs, self._supervisor.pid: SUPERVISOR, os.getpid(): LAB}

    def _read(self, processes: Mapping[int, Usage]) -> None:
        if found := self._supervisor.processes().values():
            self._jobs = {process.pid: process.name for process in found if process.pid in processes}
            self._complete = all(process.one_shot or process.pid in processes for process in found)


@contextmanager
def measuring(supervisor: Supervisor) -> Iterator[Measured]:
    """Measures during the block. The result is complete after it.

    Raises the error of a reading at the end of the block.
    """
    measured, account, roots = Measured(), Account(), Roots(supervisor)

    def take() -> None:
        processes = processor_time.read()
        account.take(processes, roots.among(processes))

    began, before = time.monotonic(), machine.read()
    take()
    with repeating(take, _PERIOD_S, "meter"):
        yield measured
    take()
    measured.seconds = time.monotonic() - began
    measured.machine = machine.between(before, machine.read())
    measured.cores = {name: seconds / measured.seconds for name, seconds in account.spent_s.items()}
