"""Policies in closed loop: a scripted fake of the optimizer's command `steps`, and the command."""

import json
import sys
from pathlib import Path

import pytest
from spillway_lab.scenario import scenario as scenarios
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.simulator import rounds, stepped
from spillway_lab.simulator.indices import Weights

LAB = Path(__file__).parents[2]
BACKEND = "backend GET /items/{id}"
WEST = ("west", "gateway", BACKEND)

# Answers with rules from its first argument, one after the other, and keeps what it was asked.
FAKE = """
import json, sys
answers = json.loads(sys.argv[1])
with open(sys.argv[2], "w") as asked:
    for line in sys.stdin:
        asked.write(line)
        asked.flush()
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            sys.exit("no such model")
        print(json.dumps(answer), flush=True)
"""


def _answer(solves: int = 0, papa: tuple[str, ...] = (), **weights: int) -> dict:
    rule = {"source_cluster": "west", "source_service": "gateway", "class": BACKEND, "weights": weights}
    steps = [{"outcome": outcome} for outcome in papa]
    return {"rules": [rule] if weights else [], "solves": [{}] * solves, "papa_steps": steps}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a fake with these answers in place of the optimizer. Returns the file that it writes."""

    def scripted(*answers: dict | None) -> Path:
        asked = tmp_path / "asked.jsonl"
        command = [sys.executable, "-c", FAKE, json.dumps(answers), str(asked)]
        monkeypatch.setattr(stepped, "command", lambda *_: command)
        return asked

    return scripted


def _scenario(seconds: float, events: list[dict], rps: dict[str, float] | None = None) -> Scenario:
    """The scenario slow-cluster with another length and other events, without a warm-up."""
    scenario = scenarios.load(LAB / "scenarios/slow-cluster.yaml")
    raw = json.loads(scenario.document.model_dump_json(exclude_none=True))
    load = rps or raw["load"]["measure"]["rps"]
    raw["load"] = {"measure": {"warm_up_seconds": 0, "measured_seconds": seconds, "rps": load}}
    raw |= {"events": events, "repetitions": 1}
    return scenario.model_copy(update={"document": type(scenario.document).model_validate(raw)})


def _run(scenario: Scenario, policy: str, folder: Path) -> rounds.Simulated:
    [found] = rounds.rounds(scenario, [policy], 1, folder, lambda _: None)
    return found


def test_rules_of_each_second_take_effect_in_the_next(fake, tmp_path):
    """West's calls stay for three answers, and go to central from then on: its board has them."""
    local, moved = _answer(1, west=10_000), _answer(0, ("kept", "rolled_back"), central=10_000)
    asked = fake(local, local, moved, local)
    found = _run(_scenario(6, [], {"west": 200}), "spillway", tmp_path)
    documents = [json.loads(line) for line in asked.read_text().splitlines()]
    begin = documents[0]["at_ms"]
    assert [d["at_ms"] - begin for d in documents] == [0, 1000, 2000, 3000, 4000]
    central = [d["model"]["load"]["central"].get(BACKEND, {}).get("rps", 0.0) for d in documents]
    assert central[:3] == [0, 0, 0] and central[3] == pytest.approx(50, abs=15)
    assert central[4] == pytest.approx(40, abs=13)  # the same second, and calls that were on the way
    assert (found.plans, found.papa) == (4, {"kept": 1, "rolled_back": 1})


@pytest.mark.parametrize(("policy", "after"), [("spillway", 200), ("spillway-frozen-curves", 400)])
def test_frozen_curves_and_capacities_are_those_of_the_start(fake, tmp_path, policy, after):
    """A backend becomes half as fast. What is frozen does not show it."""
    asked = fake(_answer())
    slowed = {"at_seconds": 2, "service": {"service": "backend", "cluster": "central", "speed": 0.5}}
    _run(_scenario(4, [slowed], {"west": 200}), policy, tmp_path)
    found = [
        row["capacity_rps"]
        for line in asked.read_text().splitlines()
        for row in json.loads(line)["model"]["capacities"]
        if (row["service"], row["cluster"]) == ("backend", "central")
    ]
    assert found == pytest.approx([400, after, after])


def test_an_optimizer_that_ends_is_quoted(fake, tmp_path):
    fake(_answer(), None)
    with pytest.raises(InvalidInput, match="the optimizer has ended: no such model"):
        _run(_scenario(4, [], {"west": 200}), "spillway", tmp_path)


@pytest.mark.parametrize(
    ("policy", "arguments"),
    [
        ("spillway", ["--policy", "spillway", "--papa"]),
        ("spillway-no-papa", ["--policy", "spillway", "--no-papa"]),
        ("spillway-frozen-curves", ["--policy", "spillway", "--papa"]),
        ("spillway-frozen-no-papa", ["--policy", "spillway", "--no-papa"]),
        ("papa-only", ["--policy", "mostly-local", "--papa"]),
        ("l3", ["--policy", "l3", "--papa"]),
    ],
)
def test_a_policy_is_a_policy_of_the_optimizer_with_or_without_papa(tmp_path, policy, arguments):
    assert stepped.command(_scenario(4, []), policy, tmp_path)[-3:] == arguments


def _to_central(policy: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the weight of central in west's rule, second after second.

    Central's backend answers 150 ms late, which no curve shows.
    """
    found: list[int] = []
    rules = stepped.Stepped.rules

    def kept(self: stepped.Stepped, at: float, model: dict) -> Weights:
        answer = rules(self, at, model)
        found.append(answer.get(WEST, {}).get("central", 0))
        return answer

    monkeypatch.setattr(stepped.Stepped, "rules", kept)
    slow = {"at_seconds": 1, "service": {"service": "backend", "cluster": "central", "delay_ms": 150}}
    _run(_scenario(240, [slow]), policy, folder)
    return found


def test_papa_moves_load_away_from_a_slow_cluster_that_no_curve_shows(tmp_path, monkeypatch):
    """Two steps of 5 % at least in four minutes."""
    found = _to_central("spillway", tmp_path, monkeypatch)
    assert found[0] > 2000 and found[-1] <= found[0] - 1000


def test_without_papa_the_slow_cluster_keeps_its_load(tmp_path, monkeypatch):
    """The optimizer's model has no reason to move more than demand's chance does."""
    found = _to_central("spillway-no-papa", tmp_path, monkeypatch)
    assert found[0] > 2000 and abs(found[-1] - found[0]) < 500


def test_l3_sees_the_slow_cluster_and_needs_no_curve_for_it(tmp_path, monkeypatch):
    """West's own backend and central's start alike; 150 ms move most calls away in a minute."""
    found = _to_central("l3", tmp_path, monkeypatch)
    assert found[-1] < 2000


def test_only_feedback_is_told_how_calls_ended(fake, tmp_path):
    """Each entry says what callers saw: a delay of some answers is p99 and not p50."""
    event = {"service": "backend", "cluster": "central", "delay_ms": 400, "delay_share": 0.3}
    scenario = _scenario(12, [{"at_seconds": 0, "service": event}], {"west": 100})
    for policy, told in (("spillway", False), ("l3", True)):
        asked = fake(_answer(central=10_000))
        _run(scenario, policy, tmp_path)
        newest = json.loads(asked.read_text().splitlines()[-1])["model"]
        assert ("outcomes" in newest) == told
    seen = newest["outcomes"]["west"]["\t".join((BACKEND, "gateway", "central"))]
    assert seen["rps"] == pytest.approx(100, rel=0.25) and seen["success_rate"] == 1.0
    assert seen["p50_ms"] < 300 < 400 < seen["p99_ms"]
    assert seen["in_flight"] == pytest.approx(seen["rps"] * 0.17, rel=0.6)
