"""A job's processes are counted for it across restarts, from a supervisor that is only recorded."""

import os
from typing import Any, cast

from spillway_lab.load.meter import LAB, SUPERVISOR, Roots
from spillway_lab.load.processor_time import Usage
from spillway_lab.stack.supervisor import Process

ALWAYS = {7: SUPERVISOR, os.getpid(): LAB}


class Recorded:
    """A supervisor with process id 7. `pids` are those of its jobs, 0 while a job does not run."""

    pid = 7

    def __init__(self, **pids: int) -> None:
        self.pids, self.asked, self.answers = pids, 0, True

    def processes(self) -> dict[str, Process]:
        self.asked += 1
        return {
            name: Process(name, "Running", True, pid, 0, 0, one_shot=name == "migrate")
            for name, pid in self.pids.items()
            if self.answers
        }


def roots(supervisor: Recorded) -> Roots:
    return Roots(cast(Any, supervisor))


def running(*pids: int) -> dict[int, Usage]:
    return {pid: Usage(pid, 1, 7, "program", 0.0, 0.0) for pid in pids}


def test_a_job_that_starts_again_has_its_new_process() -> None:
    """For some seconds the job has no process. The supervisor is asked until it has one again."""
    supervisor = Recorded(kafka=20, redis=30)
    found = roots(supervisor)
    assert found.among(running(20, 30)) == {20: "kafka", 30: "redis"} | ALWAYS
    supervisor.pids["kafka"] = 0
    assert found.among(running(30)) == {30: "redis"} | ALWAYS
    supervisor.pids["kafka"] = 21
    assert found.among(running(30, 21)) == {21: "kafka", 30: "redis"} | ALWAYS


def test_the_supervisor_is_not_asked_while_nothing_has_changed() -> None:
    """Asking costs processor time, which would be measured too. A job that has ended is done."""
    supervisor = Recorded(kafka=20, migrate=0)
    found = roots(supervisor)
    for _ in range(3):
        assert found.among(running(20)) == {20: "kafka"} | ALWAYS
    assert supervisor.asked == 1


def test_jobs_are_kept_while_the_supervisor_does_not_answer() -> None:
    """Otherwise what they use would count for the supervisor, which is their parent."""
    supervisor = Recorded(kafka=20, redis=30)
    found = roots(supervisor)
    found.among(running(20, 30))
    supervisor.answers = False
    assert found.among(running(20))[20] == "kafka"
