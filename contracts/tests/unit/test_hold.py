"""How relays decay expired weights.

Uses the golden file that the relay's tests read too, and properties that hold for any input.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_contracts import hold, names

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/hold.json").read_text())
HOUR_MS = 3_600_000


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"{c['cluster']}-{c['hold_ms']}-{c['age_ms']}")
def test_the_golden_steps_and_weights_are_what_is_reckoned(case: dict):
    kept = hold.kept_steps(case["age_ms"], case["hold_ms"], case["cluster"], case["service"])
    assert kept == case["kept"]
    assert hold.decayed({"west": 1234, "east": 5001, "north": 3765}, "west", kept) == case["weights"]


@given(st.text(), st.text(), st.integers(1, 10**10), st.lists(st.integers(0, 2 * 10**10), min_size=2))
def test_what_is_kept_only_falls(cluster: str, service: str, hold_ms: int, ages: list[int]):
    kept = [hold.kept_steps(age, hold_ms, cluster, service) for age in sorted(ages)]
    assert kept == sorted(kept, reverse=True)
    assert all(0 <= k <= names.VALUE_HOLD_STEPS for k in kept)
    assert all(k == 0 for k, age in zip(kept, sorted(ages), strict=True) if age >= hold_ms)


def test_services_begin_and_end_at_different_times():
    """With a hold of six hours, services begin to decay at different times after 1.5 to 3 hours.

    All reach zero after six hours, and no service loses more than one step per minute.
    """
    begins = set()
    for i in range(200):
        kept = [hold.kept_steps(m * 60_000, 6 * HOUR_MS, "west", f"service-{i}") for m in range(361)]
        assert kept[89] == names.VALUE_HOLD_STEPS and kept[360] == 0
        assert max(a - b for a, b in zip(kept, kept[1:], strict=False)) == 1
        begins.add(next(m for m, k in enumerate(kept) if k < names.VALUE_HOLD_STEPS))
    assert len(begins) > 50


def test_what_relays_route_by_is_all_of_it_then_less_then_nothing():
    """Where the nearest cluster is unknown, the weights stay until the hold ends."""
    rule, all_ms = {"east": 8000, "west": 2000}, names.VALUE_HOLD_SECONDS * 1000

    def at(age_ms: int, nearest: str | None) -> dict[str, int]:
        return dict(hold.routed(rule, nearest, "west", "web", age_ms))

    late = all_ms * 5 // 8
    kept = hold.kept_steps(late, all_ms, "west", "web")
    assert 0 < kept < names.VALUE_HOLD_STEPS
    assert at(-1, "west") == at(0, "west") == at(late, None) == rule
    assert at(late, "west") == hold.decayed(rule, "west", kept) != rule
    assert at(all_ms, "west") == at(all_ms, None) == {}
