"""`spillway explain` on a situation: the split that plan shows, and errors for missing routes."""

import dataclasses
from pathlib import Path

import pytest
from spillway_contracts import topology
from spillway_contracts.guardrails import Denial, Guardrails
from spillway_optimizer.commands.explaining import explained
from spillway_optimizer.commands.plan import plan
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.problem.rules import TOTAL
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources import model_file
from spillway_optimizer.sources.errors import InputError
from spillway_optimizer.sources.situation import Situation, situation
from spillway_optimizer.sources.source_data import SourceData
from spillway_optimizer.sources.whatif import WhatIf

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
GATEWAY, FRONTEND, BACKEND = (f"{s} GET /items/{{id}}" for s in ("gateway", "frontend", "backend"))


@pytest.fixture
def data() -> SourceData:
    telemetry = model_file.read(GOLDEN / "3_model.json")
    return SourceData(
        "golden", telemetry, topology.load(GOLDEN / "topology.yaml"), model_file.as_of(telemetry)
    )


def _explained(of: Situation, class_id: str, cluster: str) -> dict:
    return explained(of, class_id, cluster, SPILLWAY, Progress())


@pytest.mark.parametrize("part", [0.137, 0.5, 0.731])
def test_explain_explains_the_rules_that_plan_shows(data, part):
    """Both show the same weights, also under an egress budget.

    With a budget, rounding to integers must respect it.
    """
    free = plan(situation(data, WhatIf()), (SPILLWAY,), Progress())["policies"][SPILLWAY]
    budget = part * free["egress_usd_per_hour"]
    of = situation(
        dataclasses.replace(data, guardrails=Guardrails(egress_budget_usd_per_hour=budget)), WhatIf()
    )
    planned = plan(of, (SPILLWAY,), Progress())["policies"][SPILLWAY]
    assert planned["egress_usd_per_hour"] <= budget * (1 + 1e-9)
    split = 0
    for class_id in (FRONTEND, BACKEND):
        document = _explained(of, class_id, "west")
        assert document["predicted"]["egress_usd_per_hour"] == pytest.approx(planned["egress_usd_per_hour"])
        for route in document["routes"]:
            [weights] = [
                rule["weights"]
                for rule in planned["rules"]
                if (rule["source_cluster"], rule["class"]) == ("west", class_id)
            ]
            shares = {d["cluster"]: d["share"] * TOTAL for d in route["destinations"] if d["share"] > 0}
            assert shares == pytest.approx(weights, abs=1e-6)
            split += len(weights) > 1
    assert split, "a budget above nothing lets something leave"


def test_a_caller_that_can_reach_nothing_is_not_said_to_be_absent(data):
    """frontend is in west, but denials leave its calls to backend without a destination.

    So frontend is called in east only. The error gives a reason for every destination. For a
    cluster without the caller, it says that the caller is absent.
    """
    denied = Guardrails(
        denied_destinations=[Denial(source_cluster="west", traffic_class=BACKEND, clusters=["west", "east"])]
    )
    of = situation(dataclasses.replace(data, guardrails=denied), WhatIf())
    with pytest.raises(InputError) as error:
        _explained(of, BACKEND, "west")
    assert str(error.value).splitlines() == [
        f"CLUSTER: frontend in 'west' gets no calls, as it can reach {BACKEND!r} nowhere from there",
        "CLUSTER: west: denied",
        "CLUSTER: east: denied",
    ]
    gone = situation(data, WhatIf(without=(("frontend", "west"),)))
    with pytest.raises(InputError, match="none of the callers of .* is in 'west': frontend"):
        _explained(gone, BACKEND, "west")


def test_a_class_that_nobody_asks_for_now_is_not_unknown(data):
    """The error is one accurate line. For an unknown name, it lists the closest known ones."""
    ratios = tuple(row for row in data.telemetry.call_ratios if row.class_id != BACKEND)
    idle = dataclasses.replace(data, telemetry=dataclasses.replace(data.telemetry, call_ratios=ratios))
    of = situation(idle, WhatIf())
    with pytest.raises(InputError) as error:
        _explained(of, BACKEND, "west")
    assert str(error.value) == (
        f"CLASS: {BACKEND!r} is known to telemetry, but no request of users calls it now"
    )
    with pytest.raises(InputError, match="^CLASS: unknown 'frontend GET /x'; closest: frontend GET "):
        _explained(of, "frontend GET /x", "west")
