"""The shipped guardrails limit the running loop.

An optimizer that is away for longer than its rules last changes nothing.
"""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import judges
import pytest
import yaml
from injecting import WEST, stop
from loop_harness import Background, Loop
from spillway_contracts import names
from spillway_lab.stack.stack import GUARDRAILS, INFRA
from spillway_lab.testing.waiting import eventually
from watching import Sample, Watch, Weights

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]
SHIPPED = INFRA / "guardrails.yaml"
_AWAY_S = 160.0  # rules expire after 120 s
_IN_FORCE_S = 5.0  # from the optimizer's end until Envoys use its last rules
_UNSEEN_S = 20.0  # longest time between two samples of the Envoys
_NOISE = 1  # rounding error, in weights
_TAKEN = "SELECT count() FROM solves WHERE trigger = 'guardrails' AND at > fromUnixTimestamp64Milli(toInt64(%(at)s))"


@pytest.fixture
def shipped(loop: Loop, guardrails: Path) -> Iterator[dict]:
    """The stack runs under the shipped guardrails, and afterwards under the lab's again."""
    use(loop, guardrails, yaml.safe_load(SHIPPED.read_text()))
    yield yaml.safe_load(SHIPPED.read_text())
    guardrails.write_text(GUARDRAILS.read_text())


def use(loop: Loop, guardrails: Path, document: dict) -> None:
    """Writes the file and returns when the optimizer has solved with it."""
    client, now = loop.clickhouse(), time.time()
    guardrails.write_text(yaml.safe_dump(document))
    eventually(
        lambda: client.execute(_TAKEN, {"at": int(now * 1000)})[0][0], "a solve within the changed guardrails"
    )


def test_rules_hold_through_an_optimizer_outage_within_the_shipped_guardrails(
    loop: Loop, guardrails: Path, shipped: dict
):
    """While nobody proposes, no request fails and no weight changes, although all rules expire.

    Then rules are renewed. A change that the operator requests arrives in steps of at most the
    maximum shift.
    """
    away, back = stop("optimizer", "papa")
    endless = Background(loop.stack, "guarded", 10, endless=True)
    with endless as background, Watch(loop.stack, loop.control) as watch:
        loop.closed_since(time.time())
        time.sleep(10)
        away(loop)
        began = time.monotonic()
        time.sleep(_AWAY_S)
        ended, ended_unix = time.monotonic(), time.time()
        back(loop)
        renewed = loop.closed_since(ended_unix)
        again = time.monotonic()
        least = shipped["minimum_local_share"]
        eventually(lambda: local(watch.now().weights) > 0, "rules of west", 60)
        wanted = min(names.VALUE_WEIGHT_TOTAL, local(watch.now().weights) + 3 * shipped["maximum_shift"] // 2)
        use(loop, guardrails, shipped | {"minimum_local_share": wanted})
        eventually(lambda: local(watch.now().weights) >= wanted, "the larger local share", 90)
        published, routed = watch.published(again, time.monotonic()), watch.routed(began + _IN_FORCE_S, ended)
        sent = watch.published(began - 10, began + 1)
    print(f"away {ended - began:.0f} s, back in {again - ended:.1f} s; {judges.band(routed[:1], routed)}")
    assert min(r.expires_at.seconds for r in renewed.rulesets.values()) > ended_unix
    last = sent[-1].weights
    assert moved(Sample(began, {r: w for r, w in routed[0].weights.items() if r in last}), sent[-1]) <= _NOISE
    looks = [began, *(s.at for s in routed), ended]
    assert max(b - a for a, b in pairwise(looks)) < _UNSEEN_S
    assert [s.at - began for s in routed if moved(routed[0], s) > _NOISE] == []
    assert all(local(s.weights) >= least for s in [*routed, *published])
    steps = [moved(a, b) for a, b in pairwise(published) if a.weights != b.weights]
    print(f"steps of {steps}")
    assert steps and max(steps) <= shipped["maximum_shift"] + _NOISE
    assert background.failures() == []


def local(weights: Weights) -> int:
    """Returns the smallest share that a rule of west keeps in west; 0 where it has no rules."""
    kept = (w.get(WEST, 0) for (cluster, *_), w in weights.items() if cluster == WEST)
    return min(kept, default=0)


def moved(before: Sample, after: Sample) -> int:
    """Returns the largest change of a weight. A missing rule counts with its whole weight."""
    return max(
        abs(after.weights.get(rule, {}).get(cluster, 0) - weight)
        for rule, weights in before.weights.items()
        for cluster, weight in weights.items()
    )
