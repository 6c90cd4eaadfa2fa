"""The optimizer while the guardrails freeze the weights: it renews them, and proposes no others."""

import pytest
from mesh import NOW, Mesh
from spillway_optimizer.problem.rules import of_ruleset
from two_applications import OTHER

BACKEND = "backend GET /items/{id}"


@pytest.fixture
def mesh(settings, tmp_path):
    return Mesh(settings, tmp_path)


def freeze(mesh: Mesh, freeze: bool) -> None:
    file = mesh.solving.guardrails
    file.current = file.current.model_copy(update={"freeze": freeze})


def busier(d: dict) -> None:
    for board in ("demand", "load"):
        d[board]["west"]["gateway GET /items/{id}"]["rps"] *= 1.5


def without_an_application(d: dict) -> None:
    """The other application's requests have ended, and nothing is modelled of it any more."""
    for board in ("demand", "load"):
        for entries in d[board].values():
            for class_id in [name for name in entries if name.startswith(OTHER)]:
                del entries[class_id]


async def test_weights_are_renewed_while_frozen_and_change_afterwards(mesh):
    """Load changes by half, curves are lost, and an application ends: every rule is sent as it is.

    The rows say why. Once the freeze is over, the same load changes the rules.
    """

    def blind(d):
        d["curves"] = [row for row in d["curves"] if row["class"] != BACKEND]

    await mesh.solve(NOW)
    before = of_ruleset(mesh.sent[-1])
    freeze(mesh, True)
    for n, change in enumerate((busier, blind, without_an_application), 1):
        rows = await mesh.solve(NOW + 16 * n, change, "load")
        assert len(mesh.sent) == 1 + n and of_ruleset(mesh.sent[-1]) == before
        assert mesh.sent[-1].policy == "spillway"
        assert {row["outcome"] for row in rows.values()} == {"renewed"}
        assert {row["reason"] for row in rows.values()} == {"freeze: true in the guardrails"}
        assert set(mesh.reasons().values()) == {"held: freeze: true in the guardrails"}
    rows = await mesh.solve(NOW + 50, busier, "load")
    assert len(mesh.sent) == 4 and {row["outcome"] for row in rows.values()} == {"unchanged"}
    freeze(mesh, False)
    rows = await mesh.solve(NOW + 66, busier, "guardrails")
    assert rows["gateway"]["outcome"] == "proposed" and of_ruleset(mesh.sent[-1]) != before
