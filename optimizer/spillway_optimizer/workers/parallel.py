"""Solves applications at the same time, in worker processes.

Threads do not help: the solvers hold the interpreter's lock (ADR 46). A worker that crashes, takes
too long, or needs too much memory costs at most its application's solve, and is counted.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock

from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Policy
from spillway_optimizer.process.cgroups import cores, memory
from spillway_optimizer.process.states import States
from spillway_optimizer.workers.attempt import Routers, attempt, concluded
from spillway_optimizer.workers.bins import bins, saving, shares
from spillway_optimizer.workers.solved import Failed, Solved
from spillway_optimizer.workers.worker import Worker, WorkerError
from spillway_optimizer.workers.worker_main import packed, unpacked

# How a worker's solve ended; without its own answer: `died`, `killed` after too long, `memory`.
SOLVED, DIED, KILLED, MEMORY = "solved", "died", "killed", "memory"
OUTCOMES = (SOLVED, DIED, KILLED, MEMORY)
LEAST_SAVING_S = 0.05
_MOST_BY_DEFAULT = 4
# Memory of the container that is not for workers but for the leader and its audit, and a worker's.
_KEPT_BYTES = 1 << 30
_LEAST_BYTES, _MOST_BYTES = 256 << 20, 1 << 30
# Of the time for all solves or of the application's last solve, and at least. Solvers keep to their
# time themselves, but not within a linear programme, and other processes may have the cores.
_KILLED_AFTER, _LEAST_KILLED_AFTER_S = 5, 30.0
_LOG = logging.getLogger(__name__)


def room(processes: int, available: int, limit: float) -> tuple[int, int]:
    """Returns how many workers there may be, below 2: none, and how many bytes of data each has.

    `processes`: that many; 0: by the cores `available` and the container's `limit` of
    memory in bytes.
    """
    bytes_ = limit - _KEPT_BYTES
    count = processes or int(min(available, _MOST_BY_DEFAULT, max(bytes_ // _LEAST_BYTES, 1)))
    return count, int(min(max(bytes_ / count, _LEAST_BYTES), _MOST_BYTES))


@dataclass(frozen=True)
class _Result:
    name: str
    solved: Solved | Failed
    outcome: str | None  # one of OUTCOMES; None: no worker was asked


class Parallel:
    """Solves applications in worker processes, where that saves time.

    Its state: the workers, and the seconds that each application's last solve took. Policy objects
    stay with the leader. They go to a worker with the problem and come back with the solution.
    """

    def __init__(
        self,
        processes: int,
        solve_s: float,
        keep: Callable[[str, Policy], None],
        states: States,
        start: Callable[[int], Worker] = Worker,
    ):
        """`processes`: 0: as many as there are cores, 1: none.

        `keep`: called with the policy object of an application that a worker has used.
        """
        self.most, self._bytes = room(processes, cores(), memory())
        self._killed_after_s = max(_KILLED_AFTER * solve_s, _LEAST_KILLED_AFTER_S)
        self._keep, self._states, self._start = keep, states, start
        self._workers: list[Worker] = []
        self._full: list[Worker] = []  # those that had too little memory in this run
        self.took: dict[str, float] = {}
        self._large: set[str] = set()  # applications for which workers have too little memory
        self._policy = ""  # that these times and applications are of
        self._here = Lock()
        states.gauges["workers",] = 0
        for outcome in OUTCOMES:
            # Served from the start, so that the first one shows as an increase.
            states.counters[f"worker.{outcome}"] += 0

    def solve(self, problems: Mapping[str, Problem], routers: Routers) -> dict[str, Solved | Failed] | None:
        """Returns the solution of each application; None if it is quicker to solve them here.

        Starts workers for the next time if too few are ready. The caller does not wait for them.
        """
        sizes = {name: problem.layout.demand.size for name, problem in problems.items()}
        small = {name: size for name, size in sizes.items() if name not in self._large}
        count = min(self.most, len(small))
        if count < 2 or saving(self.took, bins(small, count)) < LEAST_SAVING_S:
            return None
        ready = [worker for worker in self._renewed(count) if worker.ready()]
        if len(ready) < 2:
            return None
        distributed = bins(small, min(count, len(ready)))
        large = [name for name in problems if name in self._large]

        def solve_bin(worker: Worker | None, names: Sequence[str]) -> list[_Result]:
            share = shares(sizes, names)
            return [
                self._result(worker, name, problems[name], partial(routers, name, share[name]))
                for name in names
            ]

        with ThreadPoolExecutor(len(distributed) + 1, "worker") as threads:
            results = threads.map(solve_bin, [*ready[: len(distributed)], None], [*distributed, large])
            found = {result.name: result for of_bin in results for result in of_bin}
        self._count(found.values())
        self._renewed(count)
        return {name: found[name].solved for name in problems}

    def _count(self, results: Iterable[_Result]) -> None:
        """Counts outcomes, and remembers which applications workers have too little memory for."""
        for result in results:
            if result.outcome is not None:
                self._states.counters[f"worker.{result.outcome}"] += 1
            if result.outcome == MEMORY:
                self._large.add(result.name)

    def note(self, found: Mapping[str, Solved | Failed]) -> None:
        """Remembers how long each solve took. A failed one keeps its last time."""
        self._large &= found.keys()
        known = {name: self.took[name] for name in found if name in self.took}
        took = {name: s.duration_ms / 1000 for name, s in found.items() if isinstance(s, Solved)}
        self.took = known | took

    def follow(self, policy: str) -> None:
        """Forgets what is known of the last solves if they were by another policy."""
        if policy != self._policy:
            self._policy, self.took, self._large = policy, {}, set()

    def start(self, wait_s: float = 0.0) -> int:
        """Starts all workers, waits so long for each, and returns how many are ready."""
        return sum(worker.ready(wait_s) for worker in self._renewed(self.most if self.most > 1 else 0))

    def close(self) -> None:
        """Ends all workers. They start again when they are needed."""
        for worker in self._workers:
            worker.close()
        self._workers, self.took, self._large = [], {}, set()
        self._states.gauges["workers",] = 0

    def _renewed(self, count: int) -> list[Worker]:
        """Returns the workers, `count` if they can be started, after replacing those that ended.

        One that had too little memory is replaced too. It keeps much of what it took, so it would
        have too little for smaller applications as well.
        """
        for worker in self._workers:
            if worker in self._full or not worker.alive:
                worker.close()
        self._full.clear()
        self._workers = [worker for worker in self._workers if worker.alive]
        try:
            while len(self._workers) < count:
                self._workers.append(self._start(self._bytes))
        except OSError as error:
            self._states.log("workers", f"cannot start: {error}", logging.WARNING)
        self._states.gauges["workers",] = len(self._workers)
        return self._workers

    def _result(
        self, worker: Worker | None, name: str, problem: Problem, router: Callable[[], Policy]
    ) -> _Result:
        """Solves one application by the worker, or here if the worker has ended or lacks memory."""
        if worker is None or not worker.alive:
            return _Result(name, self._by_leader(problem, router), None)
        try:
            seconds = max(self._killed_after_s, _KILLED_AFTER * self.took.get(name, 0.0))
            answer = unpacked(worker.ask(packed(problem, router()), seconds))
        except WorkerError as error:
            if error.out_of_memory:
                return _Result(name, self._by_leader(problem, router), MEMORY)
            # Not solved here: what ended the worker could end the leader.
            _LOG.error("the worker that solved %s ended: %s", name or "all applications", error)
            outcome = KILLED if error.killed else DIED
            return _Result(name, Failed.internally(f"worker process: {error}"), outcome)
        except Exception as error:
            # A mistake of ours for one input must not end the loop or affect other applications.
            _LOG.exception("this solve failed")
            return _Result(name, Failed.internally(f"{type(error).__name__}: {error}"), None)
        if answer is None:
            self._full.append(worker)
            return _Result(name, self._by_leader(problem, router), MEMORY)
        solution, ms, used = answer
        self._keep(name, used)
        return _Result(name, concluded(problem, solution, ms), SOLVED)

    def _by_leader(self, problem: Problem, router: Callable[[], Policy]) -> Solved | Failed:
        """Solves in this process, one application at a time, which bounds its memory."""
        with self._here:
            return concluded(problem, *attempt(problem, router))
