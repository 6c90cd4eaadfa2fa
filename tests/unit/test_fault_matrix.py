"""The judges of the fault matrix (tests/e2e) see what they are there to see."""

import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import watching
from watching import Sample

CHAIN, KIOSK = ("west", "frontend", "backend GET /"), ("west", "kiosk", "till POST /")
PODS = [SimpleNamespace(cluster=c, service="backend") for c in ("west", "east")]
STACK = SimpleNamespace(plan=SimpleNamespace(pods=PODS), scenario=SimpleNamespace(clusters=["west", "east"]))


def sample(at: float, away: int, kiosk: int = 0, **placed: dict | None) -> Sample:
    rules = {CHAIN: {"west": 10_000 - away, "east": away}, KIOSK: {"west": 10_000 - kiosk, "east": kiosk}}
    return Sample(at, rules, {"west": {"backend": 1}, "east": {"backend": 1}} | placed)


BEFORE = [sample(0, 3000), sample(1, 3400)]


def test_noise_is_no_finding():
    """Weights that stay near what they were, and a rise towards a cluster that is known."""
    during = [sample(2, 3600), sample(3, 2500)]
    assert watching.rising(BEFORE, during, ["east"]) == []
    assert watching.collapsing(BEFORE, during) == []
    assert watching.rising(BEFORE, [sample(2, 9000)], ["west"]) == []


def test_a_rise_towards_what_is_unknown_is_found():
    assert watching.rising(BEFORE, [sample(2, 4000)], ["east"]) == [
        "west frontend → backend GET /: 3400 → 4000 towards east, unknown"
    ]


def test_a_collapse_and_a_rule_that_goes_away_are_found():
    """A cluster that is lost may lose its weights; nobody else's rule may go."""
    assert "3000 → 200 towards east" in watching.collapsing(BEFORE, [sample(2, 200)])[0]
    assert watching.collapsing(BEFORE, [sample(2, 0)], lost=["east"]) == []
    gone = Sample(2, {KIOSK: BEFORE[0].weights[KIOSK]}, BEFORE[0].placed)
    assert len(watching.collapsing(BEFORE, [gone])) == 2


def test_a_rule_of_the_other_application_must_not_change_at_all():
    assert watching.changing(BEFORE, [sample(2, 9000)], ["kiosk"]) == []
    assert len(watching.changing(BEFORE, [sample(2, 3000, kiosk=1)], ["kiosk"])) == 1


def test_an_envoy_that_is_not_placed_is_found():
    """An absent key is no finding unless it must be there."""
    assert watching.vanishing(STACK, BEFORE, [], always=True) == []
    assert len(watching.vanishing(STACK, [sample(2, 0, east={})], [], always=False)) == 1
    assert watching.vanishing(STACK, [sample(2, 0, east=None)], [], always=False) == []
    assert watching.vanishing(STACK, [sample(2, 0, east=None)], [], always=True) == ["east: no placement"]
    assert watching.vanishing(STACK, [sample(2, 0, east={})], ["east"], always=True) == []
