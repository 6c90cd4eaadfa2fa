"""Rules whose calls telemetry does not show at present are sent again unchanged."""

import json

import pytest
from mesh import NOW, Mesh
from spillway_contracts.guardrails import GuardrailFile
from test_unknown import ENTRY, THIRD, _all, _known, _times
from two_applications import OTHER


@pytest.fixture
def mesh(settings, tmp_path):
    return Mesh(settings, tmp_path, THIRD, demand_half_life_s=0)


def _idle(prefix, *, method="GET"):
    """Removes the calls of these services from all boards. Streams state that they know them."""

    def change(d):
        for board in ("demand", "load"):
            for entries in d[board].values():
                for class_id in [k for k in entries if k.startswith(prefix) and f" {method} " in k]:
                    del entries[class_id]

    return change


async def test_a_new_leader_holds_an_application_of_which_nothing_is_known(settings, tmp_path):
    """A new leader has never seen the other application's demand.

    No board contains it, and no statement mentions it. Its rules stay unchanged as long as that
    lasts, and a row names the reason.
    """
    first = Mesh(settings, tmp_path, THIRD)
    first.unknown = _known(NOW, *first.clusters)
    await first.solve(NOW)
    second = Mesh(settings, tmp_path, THIRD)
    second.in_force = first.in_force
    for now in (NOW + 5, NOW + 21, NOW + 621, NOW + 1300):
        known = _known(now, *second.clusters)
        second.unknown = {
            c: {s: e for s, e in of.items() if not s.startswith(OTHER)} for c, of in known.items()
        }
        rows = await second.solve(now, _idle(OTHER))
        assert second.rules(OTHER) == first.rules(OTHER) and set(rows) == {"gateway", ""}
        assert rows[""]["outcome"] == "renewed"
        assert any(note.startswith(f"refused: '{OTHER}") for note in rows[""]["notes"])
    second.unknown = _known(NOW + 1310, *second.clusters)
    rows = await second.solve(NOW + 1310)
    assert set(rows) == {"gateway", OTHER + "gateway"} and second.rules(OTHER) == first.rules(OTHER)


async def test_an_application_without_requests_keeps_its_rules_for_a_while(mesh):
    """Streams state that the other application is not called.

    Whenever calls return, its rules are unchanged. They are removed after ten minutes without
    calls, and not earlier.
    """
    mesh.unknown = _known(NOW, *mesh.clusters)
    await mesh.solve(NOW)
    other = mesh.rules(OTHER)

    async def solve(after, change=None):
        mesh.unknown = _known(NOW + after, *mesh.clusters)
        return (await mesh.solve(NOW + after, change)).get(OTHER + "gateway")

    for after in (5, 100, 650):
        row = await solve(after, _idle(OTHER))
        assert row["outcome"] in ("renewed", "unchanged") and mesh.rules(OTHER) == other
        assert any("rules: no such calls are known now" in note for note in row["notes"])
        assert mesh.states.gauges["application_held", OTHER + "gateway"] == 0
        assert (await solve(after + 16))["outcome"] in ("renewed", "unchanged") and mesh.rules(OTHER) == other
    for after in (700, 1000, 1299):
        assert await solve(after, _idle(OTHER)) and mesh.rules(OTHER) == other
    assert await solve(1320, _idle(OTHER)) is None and not mesh.rules(OTHER) and mesh.rules()


def _posts(d):
    """Adds the same calls again with the method POST."""
    text = json.dumps({table: d[table] for table in ("curves", "call_ratios")})
    for table, rows in json.loads(text.replace(" GET ", " POST ")).items():
        d[table] += rows
    for board in ("demand", "load"):
        for entries in d[board].values():
            entries |= {k.replace(" GET ", " POST "): {**e, "rps": e["rps"] / 9} for k, e in entries.items()}


async def test_a_class_without_requests_keeps_its_rules_beside_others_of_its_application(mesh):
    """A rare class is absent from all boards for a moment.

    Its rules are sent unchanged, and those of the other class are still decided.
    """
    mesh.unknown = _known(NOW, *mesh.clusters)
    await mesh.solve(NOW, _posts)
    before = {key: w for key, w in mesh.rules().items() if " POST " in key.class_id}
    assert before
    for after, posts in ((16, False), (32, True), (48, False), (640, False), (664, False)):
        mesh.unknown = _known(NOW + after, *mesh.clusters)
        await mesh.solve(NOW + after, _posts if posts else _all(_posts, _idle("", method="POST")))
        kept = {key: w for key, w in mesh.rules().items() if " POST " in key.class_id}
        assert kept == (before if after < 660 else {})


async def test_a_rule_without_requests_is_not_kept_against_a_denial(mesh, tmp_path):
    """The publisher would refuse the whole ruleset for it."""
    mesh.unknown = _known(NOW, *mesh.clusters)
    await mesh.solve(NOW, _times("west", 1.2, OTHER + ENTRY))
    used = {key for key, weights in mesh.rules(OTHER).items() if "east" in weights}
    assert used
    (tmp_path / "guardrails.yaml").write_text("denied_destinations: [{clusters: [east]}]")
    mesh.solving.guardrails = GuardrailFile(tmp_path / "guardrails.yaml", mesh.topology)
    mesh.unknown = _known(NOW + 16, *mesh.clusters)
    await mesh.solve(NOW + 16, _idle(OTHER))
    assert not used & mesh.rules(OTHER).keys()
