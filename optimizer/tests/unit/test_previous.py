"""Compatibility with one version of skew.

Covers values of the previous version in Redis, and fields that the next version may add.
"""

import json
from pathlib import Path

import pytest
from spillway_optimizer.clients import hot
from spillway_optimizer.papa.checkpoint import Checkpoint
from spillway_optimizer.problem.rules import RuleKey

[PREVIOUS] = (Path(__file__).resolve().parents[3] / "contracts" / "golden" / "previous").iterdir()


class StoredValue:
    """Redis's answer to MGET."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    async def mget(self, keys: list[str]) -> tuple[str, ...]:
        assert len(keys) == len(self._texts)
        return self._texts


def stored(name: str, **added: object) -> str:
    return json.dumps(json.loads(json.loads((PREVIOUS / "redis_publisher.json").read_text())[name]) | added)


@pytest.mark.parametrize("added", [{}, {"added_tomorrow": {"x": 1}}])
def test_placement_of_the_previous_publisher_and_of_the_next(added):
    """The connected services are read, whatever other fields there are."""
    bad: list[str] = []
    assert hot._services(stored("placement", **added), "west", bad) == {"gateway"}
    assert bad == []


@pytest.mark.parametrize("added", [{}, {"added_tomorrow": {"x": 1}}])
async def test_the_ruleset_in_force(added):
    """Version, rules and weights of the ruleset that the publisher last published are read."""
    found = await hot.in_force(StoredValue(stored("in_force", **added)), ("west",))
    assert (found.version, found.policy) == (7, "spillway")
    assert all(sum(weights.values()) == 10_000 for weights in found.rules.values())
    assert {key.source_cluster for key in found.rules} == {"west"}


def test_papas_checkpoint():
    """PAPA continues where the previous version stopped, and ignores fields of the next version."""
    text = (PREVIOUS / "papa_checkpoint.json").read_text()
    found = Checkpoint.from_json(text)
    key = found.trial.key
    assert isinstance(key, RuleKey) and found.progress.attempts == {key: 2}
    assert (found.trial.before, found.trial.after) == ({"west": 10_000}, {"west": 9_500, "east": 500})
    assert found.trial.objective_before_ms == 41.5 and found.rules[key]
    assert Checkpoint.from_json(json.dumps(json.loads(text) | {"added_tomorrow": 1})) == found


def test_our_checkpoint_is_readable_by_the_previous_version():
    """Our checkpoint has every key that the previous version reads, with the same value."""
    before = json.loads((PREVIOUS / "papa_checkpoint.json").read_text())
    now = json.loads(Checkpoint.from_json(json.dumps(before)).to_json())
    assert {key: now.get(key) for key in before} == before
