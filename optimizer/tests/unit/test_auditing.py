"""Audits beside the loop, with small programs in place of the reference solver."""

import asyncio
import dataclasses
import json
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.objective import evaluate_shares
from spillway_optimizer.problem.problem_json import from_document
from spillway_optimizer.process.states import States
from spillway_optimizer.service import auditing
from spillway_optimizer.service.auditing import Auditing
from spillway_optimizer.service.following import Following
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solving import audits
from spillway_optimizer.solving.routing import route_all
from spillway_optimizer.solving.solves_table import Occasion
from spillway_optimizer.workers.solved import Solved
from test_hint import apart, two_basins
from two_clusters import renamed

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
OCCASION = Occasion(1_767_225_660.0, "1-2", SPILLWAY, "period")
# Answers as `certify` does, that the audited routing costs a fixed sum.
ANSWER = """
import json, os, sys
given = json.load(sys.stdin)
assert sys.argv[1:] == ["--relative-gap", "0.001", "--seconds", "2.0"], sys.argv
assert not [name for name in os.environ if name.startswith("SPILLWAY_")]
print(json.dumps({"usd_per_hour": USD, "beyond_usd_per_hour": 0, "bound_usd_per_hour": USD * 0.9999,
                  "relative_gap": 1e-4, "unproven": 1e-4, "limits_loss": 0.0,
                  "seconds": 0.5, "notes": [], "shares": given["shares"]}))
"""


def answering(usd: float) -> tuple[str, ...]:
    return sys.executable, "-c", ANSWER.replace("USD", repr(usd))


@pytest.fixture(scope="module")
def solved() -> Solved:
    """The golden problem with the fast solver's answer."""
    problem = from_document(json.loads((GOLDEN / "4_problem.json").read_text()))
    return Solved(problem, Fast().route(problem), 10.0)


class Beside:
    """An Auditing with its surroundings in memory."""

    def __init__(self, settings, command, held=True, **values):
        self.rows, self.hints = [], {}
        self.states = States(logging.getLogger("test"))
        self.auditing = Auditing(
            settings(**{"audit_limit_s": 2.0, **values}),
            SimpleNamespace(held=lambda: held),
            SimpleNamespace(add=lambda table, row: self.rows.append((table, row))),
            self.states,
            SimpleNamespace(suggest=self.hints.__setitem__),
            command,
        )

    async def audit(self, solved: Solved, occasion: Occasion = OCCASION) -> dict[str, int]:
        """Offers a solve and waits for its audit. Returns the counters that are not 0."""
        self.auditing.offer(occasion, {"shop": solved})
        if self.auditing._task is not None:
            await self.auditing._task
        return {name: count for name, count in self.states.counters.items() if count}


@pytest.fixture
def beside(settings, monkeypatch):
    monkeypatch.setenv("SPILLWAY_CLICKHOUSE_URL", "clickhouse://user:secret@host/db")

    def make(command, **values) -> Beside:
        return Beside(settings, command, **values)

    return make


async def test_a_confirmed_solve_has_a_row_and_no_hint(beside, solved):
    """The child gets the audited routing, and no settings of ours. All outcomes are served as 0."""
    cost = solved.solution.evaluation.usd_per_hour
    world = beside(answering(cost))
    assert {k for k in world.states.counters if k.startswith("audit.")} == {
        f"audit.{outcome}" for outcome in audits.OUTCOMES
    }
    assert await world.audit(solved) == {"audit.confirmed": 1}
    ((table, row),) = world.rows
    assert (table, row["outcome"], row["application"]) == ("solves", "audited", "shop")
    assert row["audit_difference"] == pytest.approx(0) and world.hints == {}
    assert world.states.gauges["audit_relative_gap",] == 1e-4


async def test_a_better_routing_is_handed_to_the_next_solve(beside, solved):
    """One that costs less than the bound is counted as wrong, and is handed over too."""
    loose = dataclasses.replace(solved.solution, bound_usd_per_hour=1.0)
    cost = solved.solution.evaluation.usd_per_hour
    world = beside(answering(cost * 0.9))
    assert await world.audit(dataclasses.replace(solved, solution=loose)) == {"audit.better": 1}
    assert world.hints["shop"].flows(solved.problem.layout) == pytest.approx(solved.solution.flows)
    assert world.states.gauges["audit_difference_ratio",] == pytest.approx(0.1)
    world = beside(answering(cost * 0.9))
    assert await world.audit(solved) == {"audit.wrong": 1}
    assert set(world.hints) == {"shop"} and world.rows[0][1]["reason"].startswith("wrong: ")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((sys.executable, "-c", "import os; os.abort()"), "exit code -6"),
        ((sys.executable, "-c", "raise SystemExit('no optimum')"), "exit code 1: no optimum"),
        ((sys.executable, "-c", "print('nothing')"), "not a proof"),
        ((sys.executable, "-c", "print('{}')"), "not a proof: KeyError: 'usd_per_hour'"),
        (("/nowhere/certify",), "/nowhere/certify"),
    ],
)
async def test_a_child_that_fails_is_counted_and_nothing_else(beside, solved, caplog, command, message):
    """The audit has no row and no hint. The log says why."""
    world = beside(command)
    assert await world.audit(solved) == {"audit.failed": 1}
    assert world.rows == [] and world.hints == {} and message in caplog.text


async def test_a_child_that_does_not_end_is_killed(beside, solved, caplog, tmp_path):
    """It is gone after five times the limit, and counted as failed."""
    world = beside(sleeping(tmp_path), audit_limit_s=0.5)
    assert await world.audit(solved) == {"audit.failed": 1}
    assert "killed after 2.5 s" in caplog.text and world.rows == []
    assert not alive(tmp_path)


async def test_a_child_ends_with_its_leader(beside, solved, tmp_path):
    """At shutdown, or when the lease is lost, a running child is killed and not counted."""
    world = beside(sleeping(tmp_path), audit_limit_s=60.0)
    world.auditing.offer(OCCASION, {"shop": solved})
    while not (tmp_path / "pid").exists():
        await asyncio.sleep(0.01)
    await world.auditing.stop()
    assert not alive(tmp_path) and world.auditing._task.cancelled()
    assert not any(world.states.counters.values()) and world.rows == []


def sleeping(folder: Path) -> tuple[str, ...]:
    """Returns a command that writes its process id to a file and does not end."""
    return "sh", "-c", f"echo $$ > {folder}/new && mv {folder}/new {folder}/pid && exec sleep 600"


def alive(folder: Path) -> bool:
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_proof_that_comes_after_the_lease_is_dropped(beside, solved):
    """Another leader may have other rules by then."""
    world = beside(answering(1.0), held=False)
    assert await world.audit(solved) == {} and world.rows == [] and world.hints == {}


async def test_what_is_too_large_is_counted_and_starts_no_child(beside, solved, monkeypatch):
    """The log has the size and the limit."""
    monkeypatch.setattr(auditing, "MOST_SHARES", 7)
    world = beside(("/nowhere/certify",))
    assert await world.audit(solved) == {"audit.too_large": 1} and world.rows == []


async def test_an_audit_starts_only_when_one_is_due(beside, solved):
    """None starts while one runs, before its time, for another policy, or if audits are off."""
    answer = answering(solved.solution.evaluation.usd_per_hour)
    world = beside(answer, audit_s=0.0)
    assert await world.audit(solved) == {}
    world = beside(answer)
    assert await world.audit(solved, dataclasses.replace(OCCASION, policy="waterfall")) == {}
    world.auditing.offer(OCCASION, {"shop": solved})
    assert await world.audit(solved) == {"audit.confirmed": 1}
    assert await world.audit(solved) == {"audit.confirmed": 1}


async def test_the_next_solve_has_the_rules_of_an_audit_that_found_better_ones(beside):
    """The real child starts from a solve that ended in a worse basin, and proves a better routing.

    With it, the solver's next answer for the same problem costs less. The proof takes seconds, but
    the child has only what busier processes leave it.
    """
    problem, following = two_basins(), Following(None, SPILLWAY, Stop(), States(logging.getLogger("test")))
    first = following.router("shop").route(problem)
    world = beside(auditing.CERTIFY, audit_limit_s=30.0)
    world.auditing._following = following
    assert await world.audit(Solved(problem, first, 10.0)) == {"audit.better": 1}
    second = following.router("shop").route(problem)
    assert second.evaluation.usd_per_hour < first.evaluation.usd_per_hour * (1 - 2e-3)
    assert world.rows[0][1]["solution_usd_per_hour"] == pytest.approx(
        second.evaluation.usd_per_hour, rel=1e-4
    )


async def test_under_a_common_budget_a_better_routing_is_a_start_of_the_common_solve(beside):
    """The audited application costs less from then on, and the other one as much as before."""
    budget = Constraints(egress_usd_per_hour=1.0)
    both = {
        name: dataclasses.replace(renamed(two_basins(), name), constraints=budget)
        for name in ("shop", "blog")
    }
    following = Following(None, SPILLWAY, Stop(), States(logging.getLogger("test")))
    first = route_all(both, following.router)
    proven = Fast(hint=apart(two_basins())).route(two_basins()).shares
    cost = evaluate_shares(both["shop"], proven).usd_per_hour
    answer = ANSWER.replace("USD", repr(cost)).replace('given["shares"]', repr(proven.tolist()))
    world = beside((sys.executable, "-c", answer))
    world.auditing._following = following
    world.auditing.offer(OCCASION, first)
    await world.auditing._task
    assert world.states.counters["audit.better"] == 1
    second = route_all(both, following.router)
    ratio = {
        name: second[name].solution.evaluation.usd_per_hour / first[name].solution.evaluation.usd_per_hour
        for name in both
    }
    assert world.rows[0][1]["application"] == "blog" and ratio["blog"] < 1 - 2e-3
    assert ratio["shop"] == pytest.approx(1.0, rel=1e-3)
