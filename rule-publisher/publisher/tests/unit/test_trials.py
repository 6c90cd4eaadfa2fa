"""When a trial is kept, and when and why it is rolled back."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway.v1.ruleset_pb2 import Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import CanaryPolicy
from spillway_publisher.rules.answers import Refusal, fnv1a
from spillway_publisher.rules.canary import Trial
from spillway_publisher.service import trials
from spillway_publisher.service.trials import elects, parameters
from spillway_publisher.trials.verdict import ENOUGH, Calls, Evidence, Verdict, judge, lowest, together

NOW = 1_800_000_000 * 10**9
SECOND = 10**9
VERSION = NOW // 1_000_000
POLICY = CanaryPolicy(seconds=30, failed_share=0.01)
FINE = {"tried": Calls(500, 0.01), "beside": Calls(5000, 0.01)}


def trial(complete: bool = True, share: int = 2500, clusters=("north",)) -> Trial:
    whole = Ruleset(version=VERSION)
    whole.canary.share = share
    whole.canary.until.FromNanoseconds(NOW + 90 * SECOND)
    rule = whole.canary.ruleset.rules.add(source_cluster="north", source_service="web")
    rule.destinations.add(cluster="south", weight=10_000)
    return Trial(whole, complete, frozenset(clusters))


def evidence(**given) -> Evidence:
    found = {"refusals": [], "unserved": [], "elected": 3, "in_force": 3, "calls": FINE}
    return Evidence(**(found | given))


def test_a_trial_goes_on_until_its_time_and_is_then_kept():
    """The reason says how many Envoys had it, and how many of its calls failed."""
    assert judge(trial(), evidence(), POLICY, NOW + 29 * SECOND) == (Verdict.GO_ON, "")
    verdict, why = judge(trial(), evidence(), POLICY, NOW + 30 * SECOND)
    assert verdict is Verdict.KEEP and why == "3 elected Envoys have it in force; 1.0% of 500 calls failed"


@pytest.mark.parametrize("passed", [1, 40])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"refusals": [Refusal("north", "north/web/0", 8, "no such cluster")]},
            "north/web/0 refused it: no such cluster",
        ),
        ({"calls": FINE | {"tried": Calls(500, 0.2)}}, "20.0% of 500 calls failed, and 1.0% of 5000 beside"),
        ({"calls": {"tried": Calls(500, 0.2), "before": Calls(90, 0.0)}}, "and 0.0% of 90 before"),
        ({"calls": {"tried": Calls(500, 0.2)}}, "and 0.0% of 0 others"),
    ],
)
def test_harm_ends_a_trial_at_once(passed, given, says):
    """A refusal, or a share of failed calls that is clearly higher, does not wait for the end."""
    verdict, why = judge(trial(), evidence(**given), POLICY, NOW + passed * SECOND)
    assert verdict is Verdict.ROLL_BACK and says in why


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"unserved": ["north", "west"]}, "relays of north, west do not serve it"),
        ({"elected": 0, "in_force": 0}, "no connected Envoy is elected"),
        ({"in_force": 2}, "2 of 3 elected Envoys have it in force"),
        ({"calls": "ClickHouse is away: refused"}, "what became of calls is unknown: ClickHouse is away"),
    ],
)
def test_what_was_not_tried_is_not_kept(given, says):
    """A trial of which the essential is unknown is rolled back at its end, not before."""
    assert judge(trial(), evidence(**given), POLICY, NOW + SECOND)[0] is Verdict.GO_ON
    verdict, why = judge(trial(), evidence(**given), POLICY, NOW + 30 * SECOND)
    assert verdict is Verdict.ROLL_BACK and says in why
    half = judge(trial(complete=False), evidence(), POLICY, NOW + 30 * SECOND)
    assert half == (Verdict.ROLL_BACK, "it has not reached every cluster")


def test_without_a_threshold_failed_calls_do_not_count():
    """ClickHouse may be away then, or show any number of failures."""
    for calls in (None, "away", {"tried": Calls(500, 0.9), "beside": Calls(5000, 0.0)}):
        assert (
            judge(trial(), evidence(calls=calls), CanaryPolicy(seconds=30), NOW + 30 * SECOND)[0]
            is Verdict.KEEP
        )


def test_few_calls_say_nothing():
    """A trial without calls, or with too few, is kept, and the reason says so.

    If there were calls before, telemetry has stopped, and that is not the same.
    """
    assert judge(trial(), evidence(calls={}), POLICY, NOW + 30 * SECOND)[1].endswith("it routed no call")
    silent = judge(trial(), evidence(calls={"before": Calls(500, 0.0)}), POLICY, NOW + 30 * SECOND)
    assert silent == (Verdict.ROLL_BACK, "no call is known since it began, and 500 before")
    few = {"tried": Calls(ENOUGH - 1, 1.0), "beside": Calls(5000, 0.0)}
    assert judge(trial(), evidence(calls=few), POLICY, NOW + 30 * SECOND)[0] is Verdict.KEEP


@pytest.mark.parametrize(
    ("share", "beside_ms", "verdict"),
    [
        # On trial 100 ms more, because these calls go elsewhere. The others gain more than that.
        (2500, 90.0, Verdict.GO_ON),
        (2500, 150.0, Verdict.ROLL_BACK),
        # All Envoys of the cluster try it, so "beside" is another cluster.
        (10_000, 90.0, Verdict.ROLL_BACK),
    ],
)
def test_a_trial_that_makes_calls_cost_more_ends(share, beside_ms, verdict):
    """All calls that it may make faster or slower are compared with those before."""
    calls = {"tried": Calls(500, 0.0, 200.0, 50.0), "beside": Calls(1500, 0.0, beside_ms, 50.0)}
    calls["before"] = Calls(2000, 0.0, 120.0, 50.0)
    policy = CanaryPolicy(seconds=30, cost_rise=0.1)
    found, why = judge(trial(share=share), evidence(calls=calls), policy, NOW + SECOND)
    assert found is verdict
    if share == 10_000:
        assert why == "a call costs 200.0 ms, and 120.0 ms before; cost_rise allows 10.0% more"
    loose = CanaryPolicy(seconds=30, failed_share=0.01, cost_rise=1.0)
    assert judge(trial(share=share), evidence(calls=calls), loose, NOW + SECOND)[0] is Verdict.GO_ON


@given(st.lists(st.lists(st.floats(0, 1e4), min_size=1, max_size=5), min_size=1, max_size=3))
def test_groups_together_have_mean_and_deviation_of_all_calls(groups):
    """As if their calls had been one group."""
    flat = np.array([ms for group in groups for ms in group])
    found = together([Calls(len(g), 0.0, float(np.mean(g)), float(np.std(g))) for g in groups])
    assert found is not None and found.count == len(flat)
    assert found.cost_ms == pytest.approx(flat.mean()) and found.spread_ms == pytest.approx(
        flat.std(), abs=1e-3
    )


@given(st.integers(ENOUGH, 100_000), st.floats(0, 1))
def test_the_lower_end_is_between_nothing_and_the_share(count, failed):
    """It approaches the share as calls become many."""
    low = lowest(Calls(count, failed))
    assert -1e-9 <= low <= failed + 1e-9
    assert lowest(Calls(count * 100, failed)) >= low - 1e-9


def test_noise_rolls_back_about_one_trial_in_a_hundred():
    """The share of 200 calls that fail at 5 % like the others: by the binomial distribution."""
    n, p = 200, 0.05
    chance, wrong = (1 - p) ** n, 0.0
    for failed in range(n + 1):
        wrong += chance * (lowest(Calls(n, failed / n)) > p)
        chance *= (n - failed) / (failed + 1) * p / (1 - p)
    assert 0.002 < wrong < 0.02


def test_the_publisher_elects_the_envoys_that_relays_elect():
    """The same Envoys as in rule-publisher/relay/internal/table/trial_test.go."""
    found = {n: elects(fnv1a(f"north/web/{n}"), 5000) for n in range(4)}
    assert found == {0: False, 1: False, 2: True, 3: True}


def test_calls_are_compared_with_others_of_the_same_clusters_or_of_the_others():
    """Where a part of a cluster's Envoys tries it, the rest is compared; else other clusters are.

    The time before is as long as the trial.
    """
    asked = parameters(trial(), ["north", "south"])
    assert (asked["tried"], asked["beside"], asked["services"]) == (("north",), ("north",), ("web",))
    assert asked["since"] == VERSION and asked["since"] - asked["from"] == 30_000
    assert parameters(trial(share=10_000), ["north", "south"])["beside"] == ("south",)


class Asked:
    """Replaces ClickHouse: answers with rows, fails, or does not answer."""

    def __init__(self) -> None:
        self.rows: list[tuple] | Exception = []
        self.waits, self.questions = asyncio.Event(), 0
        self.waits.set()

    async def select(self, statement: str, parameters: dict) -> list[tuple]:
        self.questions += 1
        await self.waits.wait()
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


async def test_failed_calls_are_asked_for_without_waiting(monkeypatch):
    """Without an answer, the reason is known. An answer counts for a while, for its version only.

    There is one question at a time, however long its answer takes.
    """
    passed = SimpleNamespace(monotonic=lambda: clock[0])
    clock = [100.0]
    monkeypatch.setattr(trials, "time", passed)
    asked, on_trial = Asked(), trial()
    calls = trials.ComparedCalls(asked, trials.prices(Topology()))

    async def of(at: float, version: int = VERSION):
        clock[0] = at
        on_trial.whole.version = version
        found = calls.of(on_trial, ["north", "south"])
        for _ in range(3):
            await asyncio.sleep(0)
        return found

    asked.rows = [("tried", 40, 0.5)]
    assert await of(100) == "not answered yet"
    assert await of(101) == {"tried": Calls(40, 0.5)} and asked.questions == 1
    asked.rows = ConnectionRefusedError("nobody")
    await of(102)
    assert await of(103) == {"tried": Calls(40, 0.5)}  # still young enough
    assert (await of(101 + trials.STALE_S + 1)).startswith("ClickHouse is away: ")
    asked.waits.clear()
    await of(200)
    await of(300)
    assert asked.questions == 4
    asked.waits.set()
    asked.rows = []
    assert await of(301, VERSION + 1) == "not answered yet"
