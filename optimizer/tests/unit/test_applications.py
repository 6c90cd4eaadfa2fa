"""One faulty service or application next to a healthy one, whose rules do not change."""

import pytest
from mesh import NOW, Mesh
from spillway_contracts import topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_optimizer.commands.explaining import explained
from spillway_optimizer.commands.plan import plan
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources.errors import InputError
from spillway_optimizer.sources.situation import situation
from spillway_optimizer.sources.source_data import SourceData
from spillway_optimizer.sources.whatif import WhatIf
from two_applications import OTHER, document, topology_text

FRONTEND, BACKEND = "frontend GET /items/{id}", "backend GET /items/{id}"
# Share of the calls to frontend that go to the faulty service.
FEW = 0.01


def _edge(d, source, target, ratio):
    row = next(r for r in d["call_ratios"] if r["class"] == BACKEND)
    d["call_ratios"].append({**row, "source_class": source, "class": target, "calls_per_request": ratio})


def _undeclared(d):
    _edge(d, FRONTEND, "payments.example POST /v1/charges", 1.0)


def _without_capacity(d):
    """Adds a service that is declared nowhere, but has a heartbeat (see `placement`)."""
    _edge(d, FRONTEND, "audit POST /events", FEW)
    curve = next(c for c in d["curves"] if c["class"] == BACKEND)
    d["curves"].append({**curve, "service": "audit", "class": "audit POST /events"})


def _cycle(d):
    _edge(d, BACKEND, FRONTEND, FEW)


@pytest.fixture
def mesh(settings, tmp_path):
    return Mesh(settings, tmp_path)


@pytest.mark.parametrize(
    ("odd", "note"),
    [
        (
            _undeclared,
            "held: edge frontend GET /items/{id} -> payments.example POST /v1/charges: neither topology",
        ),
        (_without_capacity, "held: service audit: capacities: none for 'audit' in any cluster"),
        (
            _cycle,
            "held: edge backend GET /items/{id} -> frontend GET /items/{id}: edges: classes call each other",
        ),
    ],
)
async def test_one_odd_service_stops_neither_its_application_nor_another(mesh, odd, note):
    """A faulty edge is held with a note, and everything else continues.

    The cases: a call to an undeclared service, a callee with 1 % of the calls and without capacity,
    and classes that call each other in 1 % of the requests.
    """
    await mesh.solve(NOW)
    before, other = mesh.rules(), mesh.rules(OTHER)
    mesh.placement = {cluster: services | {"audit"} for cluster, services in mesh.placement.items()}
    rows = await mesh.solve(NOW + 16, odd)
    assert {name: row["outcome"] for name, row in rows.items()} == dict.fromkeys(rows, "renewed")
    assert any(message.startswith(note) for message in rows["gateway"]["notes"])
    assert not any("held" in message for message in rows[OTHER + "gateway"]["notes"])
    assert mesh.rules() == before and mesh.rules(OTHER) == other

    def busier(d):
        odd(d)
        for board in ("demand", "load"):
            d[board]["west"]["gateway GET /items/{id}"]["rps"] *= 1.5

    rows = await mesh.solve(NOW + 21, busier, "load")
    assert (rows["gateway"]["outcome"], rows[OTHER + "gateway"]["outcome"]) == ("proposed", "renewed")
    assert mesh.rules() != before and mesh.rules(OTHER) == other


async def test_an_application_that_cannot_be_modelled_is_held_beside_a_healthy_one(mesh):
    """A heavy class loses its curve, so its application's rules are renewed unchanged.

    This lasts as long as the curve is missing, and the reason is stated. The other application is
    still solved, and its rules change with its own load.
    """
    await mesh.solve(NOW)
    before, other = mesh.rules(), mesh.rules(OTHER)

    def blind(d, west=1.0):
        d["curves"] = [row for row in d["curves"] if row["class"] != BACKEND]
        for board in ("demand", "load"):
            d[board]["west"][OTHER + "gateway GET /items/{id}"]["rps"] *= west

    for n in range(1, 13):
        rows = await mesh.solve(NOW + 16 * n, blind)
        assert rows["gateway"]["outcome"] == "renewed" and rows[OTHER + "gateway"]["outcome"] == "renewed"
        assert any(f"refused: curves: '{BACKEND}': none" in message for message in rows["gateway"]["notes"])
        assert mesh.rules() == before and mesh.rules(OTHER) == other
    reasons = mesh.reasons()
    assert reasons["west", "frontend", "backend"].startswith("held: curves: ")
    assert not reasons["west", OTHER + "frontend", OTHER + "backend"].startswith("held")
    gauges = mesh.states.gauges
    assert gauges["application_held", "gateway"] == 1 and gauges["application_held", OTHER + "gateway"] == 0
    rows = await mesh.solve(NOW + 200, lambda d: blind(d, 1.5), "load")
    assert rows[OTHER + "gateway"]["outcome"] == "proposed" and mesh.rules(OTHER) != other
    assert mesh.rules() == before
    # When the curve is known again, the application continues from the held rules.
    rows = await mesh.solve(NOW + 216)
    assert rows["gateway"]["outcome"] == "renewed" and mesh.rules() == before


async def test_applications_that_are_joined_and_parted_keep_their_rules(mesh):
    """A call between two applications makes them one, and they separate when it ends.

    No rule moves, and the rule of that call stays for a while.
    """
    await mesh.solve(NOW)
    before, other = mesh.rules(), mesh.rules(OTHER)

    def joined(d):
        _edge(d, FRONTEND, OTHER + BACKEND, 0.002)

    rows = await mesh.solve(NOW + 16, joined)
    assert set(rows) == {"gateway"}
    both = mesh.rules(OTHER)
    kept = {key: weights for key, weights in mesh.rules(OTHER).items() if key[1] != "frontend"}
    assert mesh.rules() == before and kept == other
    rows = await mesh.solve(NOW + 32)
    assert set(rows) == {"gateway", OTHER + "gateway"}
    assert mesh.rules() == before and mesh.rules(OTHER) == both
    await mesh.solve(NOW + 700)
    assert mesh.rules() == before and mesh.rules(OTHER) == other


async def test_an_egress_budget_is_shared_by_the_applications(settings, tmp_path):
    """Applications are solved together and judged separately.

    Their total cost is within the budget of the mesh, and each is proposed.
    """
    free = Mesh(settings, tmp_path)
    rows = await free.solve(NOW)
    cost = sum(row["egress_usd_per_hour"] for row in rows.values())
    assert cost > 0
    bound = Mesh(settings, tmp_path)
    bound.solving.guardrails = _budget(tmp_path, cost / 2, bound)
    rows = await bound.solve(NOW)
    assert {row["outcome"] for row in rows.values()} == {"proposed"}
    paid = [row["egress_usd_per_hour"] for row in rows.values()]
    assert cost / 2 * 0.9 < sum(paid) <= cost / 2 * 1.001 and min(paid) > 0
    assert all(
        row["bound_usd_per_hour"] <= row["solution_usd_per_hour"] * (1 + 1e-9) for row in rows.values()
    )
    assert all(row["relative_gap"] < 1e-3 for row in rows.values())


def _budget(folder, usd_per_hour, mesh):
    (folder / "guardrails.yaml").write_text(f"egress_budget_usd_per_hour: {usd_per_hour}")
    return GuardrailFile(folder / "guardrails.yaml", mesh.solving.topology)


def test_plan_and_explain_say_what_is_held(tmp_path):
    """The healthy application is planned and explained. The held one is named with the reason."""
    (tmp_path / "topology.yaml").write_text(topology_text())
    edited = document()
    edited["curves"] = [row for row in edited["curves"] if row["class"] != BACKEND]
    _edge(edited, OTHER + FRONTEND, "payments.example POST /v1/charges", 1.0)
    source = SourceData(
        "test", telemetry.from_document(edited), topology.load(tmp_path / "topology.yaml"), NOW
    )
    found = situation(source, WhatIf())
    planned = plan(found, ("local",), Progress())
    held = {a["name"]: a["held"] for a in planned["applications"]}
    assert held[OTHER + "gateway"] == [] and held["gateway"][0].startswith(f"curves: {BACKEND!r}: none")
    assert planned["notes"][0].startswith("application 'gateway' is left out, its rules are held: curves")
    assert any(
        note.startswith(f"held: edge {OTHER}{FRONTEND} -> payments.example") for note in planned["notes"]
    )
    assert {r["traffic_class"]["service"] for r in planned["ruleset"]["rules"]} == {
        OTHER + "frontend",
        OTHER + "backend",
    }
    assert explained(found, OTHER + BACKEND, "west", "spillway", Progress())["routes"]
    with pytest.raises(InputError, match="the rules of its application are held: curves"):
        explained(found, BACKEND, "west", "spillway", Progress())
