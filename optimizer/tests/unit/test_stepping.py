"""The command `steps`: the service's decisions and PAPA's, by the clock of documents."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from mesh import NOW, Mesh
from spillway_contracts import topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.problem.rules import RuleKey, of_ruleset
from spillway_optimizer.solving.config import OptimizerTuning, PapaTuning
from spillway_optimizer.sources.errors import InputError
from spillway_optimizer.steps import document
from spillway_optimizer.steps.stepping import Stepping
from stepped import observed, rules_of
from two_applications import document as two_applications

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
TOPOLOGY = topology.load(GOLDEN / "topology.yaml")
MODEL = json.loads((GOLDEN / "3_model.json").read_text())
ENTRY, BACKEND = "gateway GET /items/{id}", "backend GET /items/{id}"
WEST = RuleKey("west", "frontend", BACKEND)


class Stepped:
    """The golden mesh. `feel` changes the model of each document, given the rules in force."""

    def __init__(
        self, papa: bool = True, policy: str = "spillway", feel=lambda model, rules: None, **papas: object
    ) -> None:
        file, tuning = GuardrailFile(None, TOPOLOGY), OptimizerTuning()
        self._stepping = Stepping(TOPOLOGY, policy, file, tuning, PapaTuning(**papas) if papa else None)
        self._feel, self.rules, self.at = feel, {}, NOW

    def run(self, seconds: int, every: int = 1, model: dict = MODEL) -> list[dict]:
        """Steps for `seconds`. Returns the answers."""
        answers = []
        for _ in range(0, seconds, every):
            self.at += every
            seen = observed(model, self.at)
            self._feel(seen, self.rules)
            answers.append(self._stepping.step(self.at, telemetry.from_document(seen)))
            self.rules = rules_of(answers[-1])
        return answers


def _slow_east(model: dict, rules: dict, helps: bool = True) -> None:
    """Makes east's backend slower than its curve. Users feel the share of calls that go there."""
    model["load"]["east"][BACKEND]["exclusive_ms"] += 200.0
    for cluster in ("west", "east"):
        there = rules.get(WEST._replace(source_cluster=cluster), {}).get("east", 0) / 10_000
        model["demand"][cluster][ENTRY]["duration_ms"] = 60.0 + (200.0 if helps else -200.0) * there


async def test_a_stepped_solve_proposes_what_the_service_proposes(settings, tmp_path):
    """Two applications whose load changes: the same solves at the same times, the same rules."""
    mesh = Mesh(settings, tmp_path)
    file = GuardrailFile(None, mesh.topology)
    stepping = Stepping(mesh.topology, "spillway", file, OptimizerTuning(), None)
    for n, factor in enumerate((1.0, 1.0, 0.5, 2.0, 1.7)):
        model, at = two_applications(), NOW + 5 * n
        for board in model["demand"].values():
            for entry in board.values():
                entry["rps"] *= factor
        model |= {"placement": {c: sorted(services) for c, services in mesh.placement.items()}}
        mesh.document = observed(model, at - 1)
        rows = await mesh.solve(at, kind="start" if n == 0 else "load" if factor in (0.5, 2.0) else "period")
        answer = stepping.step(at, telemetry.from_document(mesh.document))
        assert {row["application"]: row["outcome"] for row in answer["solves"]} == {
            name: row["outcome"] for name, row in rows.items()
        }
        assert rules_of(answer) == of_ruleset(mesh.sent[-1])
    assert answer["version"] == len(mesh.sent) > 1


def test_papa_moves_away_from_a_destination_that_is_slower_than_its_curve():
    """Steps of 5 % that users feel are kept, and the optimizer renews them with its rules."""
    mesh = Stepped(feel=_slow_east)
    [first, *_] = mesh.run(1)
    before = rules_of(first)[WEST]["east"]
    answers = mesh.run(300)
    steps = [step for answer in answers for step in answer["papa_steps"]]
    kept = [step for step in steps if step["outcome"] == "kept"]
    assert kept and kept[0]["weights_after"]["east"] == before - 500
    assert kept[0]["objective_after_ms"] < kept[0]["objective_before_ms"]
    assert mesh.rules[WEST]["east"] < before - 500
    [changed] = [r for r in answers[-1]["rules"] if (r["source_cluster"], r["class"]) == ("west", BACKEND)]
    assert changed["changed_by"] == "papa"
    assert {solve["outcome"] for answer in answers for solve in answer["solves"]} == {"renewed", "unchanged"}


def test_a_step_that_users_do_not_like_is_rolled_back():
    """PAPA measures the same clock's windows after the step, and restores the weights."""
    mesh = Stepped(feel=lambda model, rules: _slow_east(model, rules, helps=False))
    [first, *_] = mesh.run(1)
    steps = [step for answer in mesh.run(120) for step in answer["papa_steps"]]
    assert [step["outcome"] for step in steps] == ["rolled_back"]
    assert mesh.rules == rules_of(first)


def test_without_papa_the_same_documents_move_nothing():
    mesh = Stepped(papa=False, feel=_slow_east)
    [first, *_] = mesh.run(1)
    assert all(rules_of(answer) == rules_of(first) and not answer["papa_steps"] for answer in mesh.run(300))


def test_papa_alone_starts_from_mostly_localrules_of():
    """East's own calls leave it, 5 % and then 10 % at a time, and no destination is added.

    In the paper's direction: here users feel the calls to the backend alone, whatever it costs.
    """
    mesh = Stepped(policy="mostly-local", feel=_slow_east, direction="gap")
    [first, *_] = mesh.run(1)
    assert all(w[key.source_cluster] == 9800 for key, w in rules_of(first).items())
    steps = [step for answer in mesh.run(300) for step in answer["papa_steps"]]
    kept = [step["weights_after"] for step in steps if step["outcome"] == "kept"]
    assert kept[:2] == [{"east": 9300, "west": 700}, {"east": 8300, "west": 1700}]


def test_a_wait_ends_at_the_first_document_after_it():
    """With a document in 10 s, a window of 6 s takes 10 s: 8 of them, and the settling before."""
    mesh = Stepped(feel=_slow_east)
    answers = mesh.run(200, every=10)
    by_papa = [a for a in answers if any(rule["changed_by"] == "papa" for rule in a["rules"])]
    assert by_papa[0]["at_ms"] == (NOW + 10 * 10) * 1000


def test_a_model_that_cannot_be_planned_keeps_the_rules_in_force():
    """The backend has no capacity any more. The refusal has its reason, and the rules stay."""
    mesh = Stepped()
    [first, *_] = mesh.run(1)
    broken = MODEL | {"capacities": [row for row in MODEL["capacities"] if row["service"] != "backend"]}
    answers = mesh.run(200, model=broken)
    assert all(rules_of(answer) == rules_of(first) for answer in answers)
    [solve] = next(answer["solves"] for answer in answers if answer["solves"])
    assert solve["outcome"] == "refused" and "backend" in solve["reason"]
    assert mesh.run(10)[-1]["solves"] or mesh.run(10)[-1]["version"] > first["version"]


def test_before_there_is_demand_nothing_is_in_force():
    empty = MODEL | {"demand": {"west": {}, "east": {}}}
    [answer] = Stepped().run(1, model=empty)
    assert (answer["version"], answer["policy"], answer["rules"]) == (0, None, [])
    assert answer["solves"][0]["outcome"] == "refused"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "stdin:3:1:2: not JSON"),
        ("[]", "stdin:3: list; must be an object with the keys at_ms, model"),
        ('{"model": {}}', "stdin:3: model; must be an object with the keys at_ms, model"),
        (
            '{"at_ms": 4000, "model": {}}',
            "at_ms: 4000; must be a number above 5000, the time of the document",
        ),
        ('{"at_ms": true, "model": {}}', "at_ms: True; must be a number above 5000"),
        ('{"at_ms": 6000, "model": {}}', "stdin:3: model: curves: missing, must be a list of objects"),
    ],
)
def test_a_document_that_cannot_be_used_is_named(line, words):
    """The place and the key, the value, and what is allowed."""
    with pytest.raises(InputError) as error:
        document.read(line, "stdin:3", 5.0)
    assert words in str(error.value)


def _ran(lines: list[str], *arguments: str) -> subprocess.CompletedProcess:
    command = [
        sys.executable,
        "-m",
        "spillway_optimizer",
        "steps",
        "--topology",
        str(GOLDEN / "topology.yaml"),
    ]
    return subprocess.run(
        [*command, *arguments], input="\n".join(lines), capture_output=True, text=True, timeout=60
    )


def test_the_command_answers_each_line_until_its_input_ends():
    lines = [json.dumps({"at_ms": 1000 * (NOW + n), "model": observed(MODEL, NOW + n)}) for n in range(2)]
    done = _ran([*lines, '{"at_ms": 1}'], "--no-papa")
    answers = [json.loads(line) for line in io.StringIO(done.stdout)]
    assert [answer["at_ms"] for answer in answers] == [1000 * NOW, 1000 * (NOW + 1)]
    assert all(answer["rules"] and not answer["refused"] for answer in answers)
    assert done.returncode == 1 and "stdin:3: at_ms; must be an object with the keys" in done.stderr
    done = _ran(lines, "--policy", "none")
    assert done.returncode == 2 and "'none' is not one of" in done.stderr
