"""Applications that are solved at the same time, by real worker processes."""

import dataclasses
import logging
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from instances import random_problem
from mesh import NOW, Mesh
from policies_of_workers import Misbehaves
from processes_of_workers import WAIT_S, gone, python_path
from spillway_optimizer.policies import EXACT, REGISTRY, SPILLWAY
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.process.states import States
from spillway_optimizer.service.following import Following
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solving.routing import route_all
from spillway_optimizer.workers import parallel as module
from spillway_optimizer.workers.parallel import Parallel
from spillway_optimizer.workers.solved import Solved
from two_clusters import renamed

NAMES = ("shop", "blog", "mail", "maps")
LONG = Stop(relative_gap=1e-4, seconds=3600.0)


@pytest.fixture(scope="module")
def problems() -> dict[str, Problem]:
    return {
        name: renamed(random_problem(seed, constrained=False, convex=False, clusters=3), name)
        for seed, name in enumerate(NAMES)
    }


def changed(problems: dict[str, Problem]) -> dict[str, Problem]:
    """Returns the problems with 5 % more demand."""
    return {
        name: dataclasses.replace(p, demand_rps={key: 1.05 * rps for key, rps in p.demand_rps.items()})
        for name, p in problems.items()
    }


class Leader:
    """A policy that is followed, and two workers for it. `keep` gets what they return."""

    def __init__(self, policy: str = SPILLWAY, **policies: str):
        self.states = States(logging.getLogger("test"))
        self.following = Following(None, policy, LONG, self.states)
        self.parallel = Parallel(2, 1.0, self.following.keep, self.states)
        self.parallel._bytes = 256 << 20
        self._how = policies
        self.kept, self.shares = {}, {}

    def router(self, name: str, share: float):
        self.shares[name] = share
        if not self._how:
            return self.following.router(name, share)
        how = self._how.get(name, "")
        cargo = bytes(256 << 20 if how == "large job" else 0)
        return self.kept.setdefault(name, Misbehaves(how, os.getpid(), cargo=cargo))

    def solve(self, problems, parallel: bool = True):
        """Solves all applications by workers, which are ready, or here."""
        if not parallel:
            return route_all(problems, self.router)
        if self._how:
            self.parallel._keep = self.kept.__setitem__
        assert self.parallel.start(WAIT_S) == 2
        self.parallel.took = dict.fromkeys(problems, 1.0)
        return route_all(problems, self.router, self.parallel)

    def counted(self) -> dict[str, int]:
        return {
            name.removeprefix("worker."): count
            for name, count in self.states.counters.items()
            if count and name.startswith("worker.")
        }

    def pids(self) -> list[int]:
        return [worker.pid for worker in self.parallel._workers]


@pytest.fixture
def leader():
    made = []

    def make(policy: str = SPILLWAY, **policies: str) -> Leader:
        made.append(Leader(policy, **policies))
        return made[-1]

    yield make
    for each in made:
        each.parallel.close()


@pytest.mark.parametrize("policy", sorted(set(REGISTRY) - {EXACT}))
def test_workers_find_what_the_leader_finds_also_from_a_warm_start(leader, problems, policy):
    """Bit for bit, in three rounds of changing demand, and what policies remember comes back."""
    here, there = leader(policy), leader(policy)
    for round_ in (problems, changed(problems), problems):
        alone, together = here.solve(round_, parallel=False), there.solve(round_)
        assert list(together) == list(alone) == list(NAMES)
        for name in NAMES:
            assert np.array_equal(alone[name].solution.shares, together[name].solution.shares)
            assert alone[name].solution.notes == together[name].solution.notes
            assert alone[name].solution.bound_usd_per_hour == together[name].solution.bound_usd_per_hour
            assert together[name].problem is round_[name]
    assert there.counted() == {"solved": 12}


def test_the_time_of_each_worker_is_shared_by_its_applications(leader, problems):
    """Two workers have the solver's seconds twice. In turn, the applications share them once."""
    made = leader("local")
    made.solve(problems, parallel=False)
    assert sum(made.shares.values()) == pytest.approx(1.0)
    alone = dict(made.shares)
    made.solve(problems)
    assert sum(made.shares.values()) == pytest.approx(2.0)
    assert all(made.shares[name] >= alone[name] for name in NAMES)


def test_the_reference_solver_works_in_workers(leader, problems):
    """OR-Tools is loaded there, within a worker's memory, and proves bounds."""
    made = leader(EXACT)
    made.following._stop = Stop(relative_gap=1e-2, seconds=2.0)
    found = made.solve({name: problems[name] for name in NAMES[:2]})
    assert all(solved.solution.relative_gap < 1 for solved in found.values())
    assert made.counted() == {"solved": 2}


@pytest.mark.parametrize(
    ("how", "error", "count", "turns"),
    [
        ("crash", "internal error: worker process: exit code -6", {"died": 1}, 0),
        ("bug", "internal error: KeyError: 'web'", {}, 1),
        ("fail", "SolveError: no optimum", {}, 1),
        ("look", "SolveError: [] 1", {}, 1),
    ],
)
def test_a_failure_in_a_worker_is_its_applications_alone(
    leader, problems, monkeypatch, how, error, count, turns
):
    """The others have solutions, also those of the same worker. A worker that ended is replaced.

    Workers have none of the leader's addresses and passwords.
    """
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.setenv("SPILLWAY_CLICKHOUSE_URL", "clickhouse://user:secret@host/db")
    made = leader(blog=how)
    found = made.solve(problems)
    assert found["blog"] == error and found["blog"].internal == error.startswith("internal")
    assert all(isinstance(found[name], Solved) for name in NAMES if name != "blog")
    assert made.kept["blog"].turns == turns
    counted = made.counted()
    assert counted.pop("solved") >= 2 and counted == count
    assert made.parallel.start(WAIT_S) == 2 and made.states.gauges["workers",] == 2


@pytest.mark.parametrize("how", ["eat", "take all"])
def test_what_a_worker_has_no_memory_for_the_leader_solves(leader, problems, monkeypatch, how):
    """From the next run on without asking a worker first, as long as the application exists.

    Another worker replaces the one that had too little.
    """
    monkeypatch.setenv("PYTHONPATH", python_path())
    made = leader(blog=how)
    assert made.parallel.start(WAIT_S) == 2
    first = set(made.pids())
    for count in ({"solved": 3, "memory": 1}, {"solved": 6, "memory": 1}):
        found = made.solve(problems)
        assert len(first & set(made.pids())) == 1
        assert list(found) == list(NAMES) and made.counted() == count
        assert all(isinstance(solved, Solved) for solved in found.values())
    made.parallel.note({name: solved for name, solved in found.items() if name != "blog"})
    made.solve(problems)
    assert made.counted() == {"solved": 9, "memory": 2}


def test_a_job_that_a_worker_has_no_memory_to_receive_the_leader_solves(leader, problems, monkeypatch):
    """The worker ends at once, and is replaced."""
    monkeypatch.setenv("PYTHONPATH", python_path())
    made = leader(blog="large job")
    for _ in range(2):
        found = made.solve(problems)
        assert all(isinstance(solved, Solved) for solved in found.values())
    counted = made.counted()
    assert counted.pop("solved") >= 4 and counted == {"memory": 1}


def test_a_worker_that_hangs_is_killed(leader, problems, monkeypatch):
    """Its application has no solution in this run. Its last solve took 1 s, so it has 5 s."""
    monkeypatch.setenv("PYTHONPATH", python_path())
    made = leader(blog="hang")
    made.parallel._killed_after_s = 2.0
    found = made.solve(problems)
    assert found["blog"] == "internal error: worker process: killed after 5 s"
    assert sum(isinstance(solved, Solved) for solved in found.values()) == 3
    assert made.counted()["killed"] == 1


def test_a_solve_that_takes_long_in_the_leader_may_take_long_in_a_worker(leader, problems):
    """A reference solver may need longer than the solver's seconds. It is not killed for that."""
    made, given = leader("local"), {}
    assert made.parallel.start(WAIT_S) == 2
    for worker in made.parallel._workers:
        ask = worker.ask
        worker.ask = lambda job, seconds, ask=ask: given.update({job: seconds}) or ask(job, seconds)
    made.parallel.took = {"shop": 40.0, "blog": 1.0, "mail": 1.0, "maps": 1.0}
    route_all(problems, made.router, made.parallel)
    assert sorted(given.values()) == [30.0, 30.0, 30.0, 200.0]


async def test_times_of_another_policy_are_forgotten(settings, tmp_path):
    """They say nothing of the policy that is followed now."""
    mesh = Mesh(settings, tmp_path)
    made = mesh.solving._parallel = Parallel(1, 60.0, mesh.following.keep, mesh.states)
    await mesh.solve(NOW)
    assert min(made.took.values()) < 99.0
    made.took, made._large = dict.fromkeys(made.took, 99.0), set(made.took)
    made.follow(mesh.following.name)
    assert set(made.took.values()) == {99.0} and made._large
    mesh.following.name = "local"
    await mesh.solve(NOW + 20)
    assert max(made.took.values()) < 99.0 and not made._large


def test_what_a_policy_prints_is_no_answer(leader, problems, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", python_path())
    found = leader(blog="print").solve(problems)
    assert all(isinstance(solved, Solved) for solved in found.values())


def test_the_leader_solves_alone_until_workers_are_worth_it_and_ready(problems, monkeypatch):
    """It never waits for workers to start. The first round has no times to go by."""
    started = []

    class Slow:
        """A worker that is not ready before the third time that it is asked."""

        alive, asked = True, 0

        def __init__(self, most_bytes):
            started.append(self)

        def ready(self, wait_s=0.0):
            self.asked += 1
            return self.asked > 2

        def ask(self, job, seconds):
            raise AssertionError("one worker does not help")

        def close(self):
            self.alive = False

    states = States(logging.getLogger("test"))
    made = Parallel(2, 1.0, None, states, Slow)
    following = Following(None, SPILLWAY, LONG, States(logging.getLogger("test")))
    assert made.solve(problems, following.router) is None and not started
    made.took = dict.fromkeys(problems, module.LEAST_SAVING_S / 2 * 0.9)
    assert made.solve(problems, following.router) is None and not started
    made.took = {"shop": 100.0}  # the others save nothing
    assert made.solve(problems, following.router) is None and not started
    made.took = dict.fromkeys(problems, 1.0)
    assert made.solve({"shop": problems["shop"]}, following.router) is None and not started
    assert made.solve(problems, following.router) is None and len(started) == 2
    started[0].asked = 2
    assert made.solve(problems, following.router) is None and len(started) == 2
    made.close()
    assert states.gauges["workers",] == 0 and not any(worker.alive for worker in started)


def test_one_process_starts_no_workers(problems):
    made = Parallel(1, 1.0, None, States(logging.getLogger("test")))
    made.took = dict.fromkeys(problems, 100.0)
    assert made.solve(problems, None) is None and made.start() == 0


def test_a_process_that_cannot_be_started_is_logged_and_costs_nothing(problems):
    states = States(logging.getLogger("test"))

    def refused(most_bytes):
        raise OSError("no more processes")

    made = Parallel(2, 1.0, None, states, refused)
    made.took = dict.fromkeys(problems, 1.0)
    assert made.solve(problems, None) is None and states.gauges["workers",] == 0


def test_times_of_applications_are_remembered_while_they_exist(problems):
    """A solve that failed keeps the time of the one before."""
    made = Parallel(2, 1.0, None, States(logging.getLogger("test")))
    made.note({name: Solved(problems[name], None, 2000.0) for name in ("shop", "blog")})
    assert made.took == {"shop": 2.0, "blog": 2.0}
    made.note({"shop": module.Failed("no optimum"), "mail": Solved(problems["mail"], None, 500.0)})
    assert made.took == {"shop": 2.0, "mail": 0.5}


def test_a_policy_object_comes_back_only_while_its_policy_is_followed():
    """An object of an application that is gone, or of the policy before, is dropped."""
    following = Following(None, SPILLWAY, LONG, States(logging.getLogger("test")))
    following.router("shop")
    used = REGISTRY[SPILLWAY]()
    following.keep("shop", used)
    following.keep("gone", used)
    assert following.router("shop") is used and following.router("gone") is not used
    following.forget_all_but(["gone"])
    following.keep("shop", used)
    assert following.router("shop") is not used


async def test_a_run_of_the_leader_has_the_same_rows_with_workers(settings, tmp_path, monkeypatch):
    """Two applications, from telemetry to proposal, in two runs."""
    monkeypatch.setattr(module, "LEAST_SAVING_S", 0.0)
    rows = {}
    for workers in (False, True):
        mesh = Mesh(settings, tmp_path)
        made = Parallel(2, 60.0, mesh.following.keep, mesh.states)
        mesh.solving._parallel = made if workers else None
        try:
            assert not workers or made.start(WAIT_S) == 2
            rows[workers] = [await mesh.solve(now) for now in (NOW, NOW + 20)]
            assert mesh.states.counters["worker.solved"] == (4 if workers else 0)
        finally:
            made.close()
    for alone, together in zip(rows[False], rows[True], strict=True):
        assert alone.keys() == together.keys() and len(alone) == 2
        for name, row in alone.items():
            for key in (
                "outcome",
                "notes",
                "solution_usd_per_hour",
                "bound_usd_per_hour",
                "objective_usd_per_hour",
            ):
                assert row[key] == together[name][key], (name, key)


def test_closing_ends_the_workers(leader):
    made = leader()
    assert made.parallel.start(WAIT_S) == 2
    pids = made.pids()
    made.parallel.close()
    assert all(gone(pid) for pid in pids) and made.states.gauges["workers",] == 0


def test_a_worker_that_ended_is_replaced_before_it_is_asked(leader, problems):
    made = leader()
    assert made.parallel.start(WAIT_S) == 2
    os.kill(made.pids()[0], signal.SIGKILL)
    made.parallel._workers[0]._process.wait(20.0)  # /proc has it as ended before all of its threads are
    assert all(isinstance(solved, Solved) for solved in made.solve(problems).values())
    assert made.counted() == {"solved": 4}


def test_out_of_memory_a_worker_ends_before_its_leader(leader):
    made = leader()
    assert made.parallel.start(WAIT_S) == 2
    ours, *theirs = (int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in ("self", *made.pids()))
    assert all(score > ours or ours == 1000 for score in theirs)
