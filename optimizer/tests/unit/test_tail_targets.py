"""Tail targets of the guardrail file: from telemetry to rules, and in plan and explain."""

import dataclasses
import json

import pytest
from planning import FRONTEND, GATEWAY, GOLDEN, what_if
from spillway_contracts import topology
from spillway_contracts.guardrails import Guardrails, LatencyValue, TailTarget
from spillway_contracts.hot_state import DemandEntry
from spillway_optimizer.commands import explain_text, plan_text
from spillway_optimizer.commands.explaining import explained
from spillway_optimizer.commands.plan import plan
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import Unknown
from spillway_optimizer.judging.judging import sample
from spillway_optimizer.model import model
from spillway_optimizer.model.building import union
from spillway_optimizer.model.curves import at_idle
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.problem import problem as values
from spillway_optimizer.problem.objective import evaluate_shares
from spillway_optimizer.problem.problem import Curve
from spillway_optimizer.problem.problem_json import from_document, to_document
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources import model_file
from spillway_optimizer.sources.situation import situation
from spillway_optimizer.sources.source_data import SourceData

# The golden model is of a load test with little spread, so spreads are set here.
WIDTH = 3.0


def _telemetry(known: bool = True) -> Telemetry:
    """Returns the golden model, with wide spreads, or with unknown ones except at the gateway."""
    telemetry = model_file.read(GOLDEN / "3_model.json")
    rows = (
        dataclasses.replace(
            row,
            sd_a_ms=WIDTH * row.a_ms if known or row.service == "gateway" else None,
            sd_b_ms=0.5 if known or row.service == "gateway" else None,
        )
        for row in telemetry.curves
    )
    return dataclasses.replace(telemetry, curves=tuple(rows))


def _guardrails(p99_ms: float, class_id: str = GATEWAY, **others) -> Guardrails:
    return Guardrails(tail_targets=[TailTarget(traffic_class=class_id, p99_ms=p99_ms, value=5)], **others)


def _built(telemetry: Telemetry, guardrails: Guardrails) -> model.Model:
    declared = topology.load(GOLDEN / "topology.yaml")
    return model.build(telemetry, declared, model_file.as_of(telemetry), guardrails=guardrails)


def _data(telemetry: Telemetry, guardrails: Guardrails) -> SourceData:
    declared, at = topology.load(GOLDEN / "topology.yaml"), model_file.as_of(telemetry)
    return SourceData("golden", telemetry, declared, at, guardrails=guardrails)


def test_the_problem_has_targets_and_spreads():
    """They come from the file and from the rows of the curves."""
    telemetry = _telemetry()
    problem = _built(telemetry, _guardrails(120.0)).problem
    assert problem.tail_targets == {GATEWAY: values.TailTarget(120.0, 5.0)}
    row = next(row for row in telemetry.curves if row.class_id == FRONTEND)
    curve = problem.curves[FRONTEND]
    assert (curve.sd_a_ms, curve.sd_b_ms) == (pytest.approx(WIDTH * row.a_ms), 0.5)
    [target] = problem.layout.targets
    assert (target.p99_ms, target.price) == (120.0, 5.0)
    assert _built(telemetry, Guardrails()).problem.layout.targets == ()


def test_a_latency_value_multiplies_the_target():
    """A ms above the target counts like `value` ms of the mean, which the value makes dearer."""
    dear = [LatencyValue(traffic_class=GATEWAY, value=2.0)]
    [target] = _built(_telemetry(), _guardrails(120.0, latency_values=dear)).problem.layout.targets
    assert target.price == 10.0


def test_a_target_of_an_inner_class_has_no_effect():
    """A note says why."""
    built = _built(_telemetry(), _guardrails(120.0, FRONTEND))
    assert built.problem.tail_targets == {}
    [note] = [note for note in built.notes if note.startswith("tail_targets")]
    assert note.startswith(
        f"tail_targets: users make no requests of {FRONTEND!r} now; its target has no effect"
    )


def test_a_target_above_an_unknown_spread_is_not_enforced():
    """Rows from before the columns are unknown. The solve's notes name the classes."""
    document = plan(
        situation(_data(_telemetry(known=False), _guardrails(1.0)), what_if()), (SPILLWAY,), Progress()
    )
    [note] = [n for n in document["policies"][SPILLWAY]["notes"] if n.startswith("tail_targets")]
    assert "is not enforced: the spread of 'backend GET /items/{id}', 'frontend GET /items/{id}'" in note
    assert {row["p99_ms"] for row in document["policies"][SPILLWAY]["p99"]} == {None}


@pytest.mark.parametrize(
    ("row", "curve"), [((2.0, -5.0), (None, None)), ((-1.0, 5.0), (None, None)), ((2.0, -2.0), (2.0, -2.0))]
)
def test_a_spread_that_cannot_be_is_unknown(row, curve):
    """A spread below 0 at idle, or one that falls with the load. The curve itself is used."""
    telemetry, (sd_a_ms, sd_b_ms) = _telemetry(), row
    rows = tuple(dataclasses.replace(r, sd_a_ms=sd_a_ms, sd_b_ms=sd_b_ms) for r in telemetry.curves)
    curves = _built(dataclasses.replace(telemetry, curves=rows), Guardrails()).problem.curves
    assert {(found.sd_a_ms, found.sd_b_ms) for found in curves.values()} == {curve}


def test_a_service_that_is_taken_as_constant_keeps_its_spread():
    """Mean and spread are those of an idle service. What is unknown stays unknown."""
    assert at_idle(Curve(3.0, 2.0, 1.5, 4.0, 1.0)) == Curve(0.0, 5.0, 1.5, 0.0, 5.0)
    assert at_idle(Curve(3.0, 2.0, 1.5)) == Curve(0.0, 5.0, 1.5)


def test_a_target_moves_the_golden_model():
    """With a target below the estimate, the estimate falls, and the objective rises."""
    telemetry, shown = _telemetry(), {}
    for p99_ms in (10_000.0, 100.0):
        data = _data(telemetry, _guardrails(p99_ms))
        row = plan(situation(data, what_if()), (SPILLWAY,), Progress())["policies"][SPILLWAY]
        shown[p99_ms] = max(entry["p99_ms"] for entry in row["p99"]), row["objective_usd_per_hour"]
    assert shown[100.0][0] < shown[10_000.0][0] - 1 and shown[100.0][1] > shown[10_000.0][1]


def test_plan_and_explain_state_estimates_and_targets():
    """In JSON for each entry class and cluster, and as sentences where there is a target."""
    of = situation(_data(_telemetry(), _guardrails(100.0)), what_if())
    document = plan(of, (SPILLWAY,), Progress())
    row = document["policies"][SPILLWAY]["p99"][0]
    assert set(row) == {"class_id", "cluster", "rps", "p99_ms", "target_ms"}
    assert f"{SPILLWAY}: The p99 of {GATEWAY} in west is estimated at" in plan_text.as_text(document, False)
    said = explain_text.as_text(explained(of, FRONTEND, "west", SPILLWAY, Progress()))
    assert f"The p99 of {GATEWAY} in west is estimated at" in said and "its target of 100 ms." in said
    assert "These costs leave tail targets out." in said
    plain = situation(_data(_telemetry(), Guardrails()), what_if())
    said = explain_text.as_text(explained(plain, FRONTEND, "west", SPILLWAY, Progress()))
    assert "is estimated at" in said and "target" not in said


def test_observed_costs_are_compared_without_penalties():
    """No request is expected to take what a target counts, as with the caution."""
    problem = _built(_telemetry(), _guardrails(1.0)).problem
    plain = dataclasses.replace(problem, tail_targets={})
    board = {GATEWAY: DemandEntry(at=0.0, rps=100.0, duration_ms=30.0, failed_share=0.0)}
    seen = [
        sample(
            Telemetry(demand={"west": board}), Unknown(), p, evaluate_shares(p, nearest_shares(p)), 0.0, 0.0
        )
        for p in (problem, plain)
    ]
    assert evaluate_shares(problem, nearest_shares(problem)).tail_usd_per_hour > 0
    assert seen[0].predicted_ms == pytest.approx(seen[1].predicted_ms)


def test_the_union_of_applications_has_all_targets():
    """An egress budget couples applications. Each keeps its targets."""
    problem = _built(_telemetry(), _guardrails(100.0)).problem
    text = json.dumps(to_document(problem))
    for service in sorted(set(problem.classes.values())):
        text = text.replace(service, f"other-{service}")
    other = from_document(json.loads(text))
    assert union([problem, other]).tail_targets == {
        GATEWAY: values.TailTarget(100.0, 5.0),
        f"other-{GATEWAY}": values.TailTarget(100.0, 5.0),
    }
