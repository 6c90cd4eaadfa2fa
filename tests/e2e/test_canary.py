"""A change of weights is tried by the Envoys of one cluster, and then kept or taken back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from injecting import WEST
from loop_harness import Background, Loop
from spillway_contracts import names
from spillway_lab.stack.stack import GUARDRAILS
from spillway_lab.testing.waiting import eventually
from test_guardrails import local, use
from watching import Sample, Watch

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(600)]
ALL = names.VALUE_WEIGHT_TOTAL
_TRIED_S = 15
_STATES = """SELECT state FROM transitions
    WHERE at > fromUnixTimestamp64Milli(toInt64(%(at)s)) AND state IN ('canary', 'kept', 'rolled_back') ORDER BY at"""


@pytest.fixture
def lab(guardrails: Path) -> Iterator[dict]:
    """The lab's guardrails, which hold again afterwards."""
    yield yaml.safe_load(GUARDRAILS.read_text()) or {}
    guardrails.write_text(GUARDRAILS.read_text())


def test_a_change_is_routed_by_the_trials_cluster_first_and_then_kept(
    loop: Loop, guardrails: Path, lab: dict
):
    """No egress is allowed any more. West's Envoys keep every call at home, and the rules in force
    say so only when the trial is over. No request fails meanwhile.
    """
    trial = {"clusters": [WEST], "seconds": _TRIED_S}
    endless = Background(loop.stack, "trial", 10, endless=True)
    with endless as background, Watch(loop.stack, loop.control) as watch:
        loop.closed_since(time.time())
        eventually(lambda: sends_away(watch.now()), "a rule of west that sends calls away", 120)
        began, began_unix = time.monotonic(), time.time()
        use(loop, guardrails, lab | {"canary": trial, "egress_budget_usd_per_hour": 0})
        eventually(lambda: keeps_all(watch.now()), "no egress in the rules in force", 120)
        kept = time.monotonic()
        tried = first_local(watch.routed(began, kept))
        print(f"tried after {tried - began:.1f} s, in force after {kept - began:.1f} s")
        assert tried and tried + _TRIED_S / 2 < kept
        recorded(loop, began_unix, ["canary", "kept"])
    assert background.failures() == []


def test_a_freeze_takes_a_trial_back(loop: Loop, guardrails: Path, lab: dict):
    """West's Envoys send calls away again. The rules in force always did, and no request fails."""
    tried = lab | {"canary": {"clusters": [WEST], "seconds": 300}, "egress_budget_usd_per_hour": 0}
    endless = Background(loop.stack, "frozen", 10, endless=True)
    with endless as background, Watch(loop.stack, loop.control) as watch:
        loop.closed_since(time.time())
        eventually(lambda: sends_away(watch.now()), "a rule of west that sends calls away", 120)
        began, began_unix = time.monotonic(), time.time()
        use(loop, guardrails, tried)
        eventually(lambda: first_local(watch.routed(began, time.monotonic())), "a trial by west's Envoys", 60)
        frozen = time.monotonic()
        guardrails.write_text(yaml.safe_dump(tried | {"freeze": True}))
        eventually(lambda: returned(watch, frozen), "the return of west's Envoys", 60)
        print(f"back {time.monotonic() - frozen:.1f} s after the freeze")
        recorded(loop, began_unix, ["canary", "rolled_back"])
        assert not any(keeps_all(sample) for sample in watch.published(began, time.monotonic()))
    assert background.failures() == []


def returned(watch: Watch, since: float) -> bool:
    """Whether west's Envoys send calls away, by their newest sample since then."""
    samples = [sample for sample in watch.routed(since, time.monotonic()) if west(sample)]
    return bool(samples) and sends_away(samples[-1])


def first_local(samples: list[Sample]) -> float:
    """Returns when west first kept all of its calls; 0: it never did."""
    return next((sample.at for sample in samples if keeps_all(sample)), 0.0)


def sends_away(sample: Sample) -> bool:
    """Whether west has rules, and one of them sends calls away."""
    return bool(west(sample)) and local(west(sample)) < ALL


def keeps_all(sample: Sample) -> bool:
    """Whether west has rules, and all of them keep their calls at home."""
    return bool(west(sample)) and local(west(sample)) == ALL


def west(sample: Sample) -> dict:
    return {rule: weights for rule, weights in sample.weights.items() if rule[0] == WEST}


def recorded(loop: Loop, since: float, states: list[str]) -> None:
    """Waits until ClickHouse has the rows of these states since then, and no others."""
    client = loop.clickhouse()

    def found() -> list[str]:
        return [state for (state,) in client.execute(_STATES, {"at": int(since * 1000)})]

    eventually(lambda: found() == states, f"the states {states}", 30, found)
