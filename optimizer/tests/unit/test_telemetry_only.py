"""Relays run without any subscribed Envoy.

Telemetry and the topology are then enough to solve.
"""

import dataclasses

import pytest
from mesh import NOW, Mesh
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.hot_state import UnknownEntry
from spillway_optimizer.inputs import unknown
from spillway_optimizer.inputs.placements import SERVED_S, SETTLED_S
from spillway_optimizer.model import model
from test_model import BACKEND, TOPOLOGY, _inputs
from two_applications import OTHER, SERVICES

NOBODY = {"west": frozenset(), "east": frozenset()}
ALL = {"gateway", "frontend", "backend"}


def _build(change=None, topology=TOPOLOGY, now=NOW, **fields):
    read = dataclasses.replace(_inputs(change), **{"placement": NOBODY, **fields})
    return model.build(read, topology, now)


def _undeclared() -> Topology:
    found = Topology()
    found.CopyFrom(TOPOLOGY)
    del found.services[:]
    return found


def _idle(service, cluster):
    def change(d):
        for board in ("load", "demand"):
            for class_id in [k for k in d[board][cluster] if k.startswith(service + " ")]:
                del d[board][cluster][class_id]

    return change


def test_telemetry_alone_makes_a_problem():
    """Heartbeats list no Envoys, so services are placed by load boards or topology.

    Previously such a model was refused: nothing can serve frontend.
    """
    for topology in (TOPOLOGY, _undeclared()):
        built = _build(topology=topology)
        assert built.refusals == ()
        assert built.problem.placement == {(s, c) for s in ALL for c in NOBODY}
        assert not any("held" in note for note in built.notes)
    note = "placement: no Envoy subscribes in 'west' for backend, frontend, gateway, which serve calls there"
    assert note in built.notes


async def test_telemetry_alone_makes_proposals(settings, tmp_path):
    """Two applications are solved as if their Envoys subscribed."""
    mesh, ours = Mesh(settings, tmp_path), Mesh(settings, tmp_path)
    mesh.placement = dict(NOBODY)
    rows, expected = await mesh.solve(NOW), await ours.solve(NOW)
    assert {row["outcome"] for row in rows.values()} == {"proposed"}
    assert mesh.rules() == ours.rules() and mesh.rules(OTHER) == ours.rules(OTHER)
    assert {k: r["objective_usd_per_hour"] for k, r in rows.items()} == {
        k: r["objective_usd_per_hour"] for k, r in expected.items()
    }


def test_an_idle_service_is_where_the_topology_has_it():
    """The backend in east has no calls. It is a destination if it is declared."""
    built = _build(_idle("backend", "east"))
    assert ("backend", "east") in built.problem.placement
    assert "placement: no Envoy subscribes in 'east' for backend, which are declared there" in built.notes
    assert ("backend", "east") not in _build(
        _idle("backend", "east"), topology=_undeclared()
    ).problem.placement


def test_a_service_that_subscribes_elsewhere_is_where_its_envoys_or_its_calls_are():
    """The backend's Envoys subscribe only in west.

    In east it is a destination while it serves calls there. A declaration alone may be of a service
    that was scaled to zero.
    """
    west = {**NOBODY, "west": frozenset({"backend"})}
    for there in (NOBODY["east"], frozenset({"gateway", "frontend"})):
        placement = {**west, "east": there}
        assert ("backend", "east") in _build(placement=placement).problem.placement
        built = _build(_idle("backend", "east"), placement=placement)
        assert built.problem.placement == {(s, c) for s in ALL for c in NOBODY} - {("backend", "east")}


def test_a_declaration_alone_is_no_evidence_once_anybody_subscribes():
    """Callers subscribe and their callee does not, or a cluster is silent.

    An idle callee may have been scaled to zero, and would then attract requests for ever.
    """
    callers = dict.fromkeys(NOBODY, frozenset({"gateway", "frontend"}))
    silent = {"west": None, "east": frozenset()}
    for placement in (callers, silent):
        assert ("backend", "east") not in _build(
            _idle("backend", "east"), placement=placement
        ).problem.placement


def test_calls_place_no_service_where_the_topology_has_none():
    """The backend is declared only in west.

    A sender of spans from east cannot make it a destination there.
    """
    west_only = Topology()
    west_only.CopyFrom(TOPOLOGY)
    for declared in west_only.services:
        kept = [p for p in declared.placements if declared.name != "backend" or p.cluster == "west"]
        del declared.placements[:]
        declared.placements.extend(kept)
    assert ("backend", "east") not in _build(topology=west_only).problem.placement


def test_calls_of_the_future_are_no_evidence():
    """An entry one hour ahead would keep a service placed for an hour after its end."""
    west = {**NOBODY, "west": frozenset({"backend"})}
    served = {("backend", "east"): NOW + 3600}
    built = _build(_idle("backend", "east"), placement=west, served=served)
    assert ("backend", "east") not in built.problem.placement
    assert unknown.LastKnown().after(dataclasses.replace(_inputs(), load={}, served=served), NOW).served == {}


def test_a_clock_that_was_set_back_keeps_no_service_gone():
    """Envoys that left "in an hour" count as having left now."""
    known = unknown.LastKnown(left={("backend", "east"): NOW + 3600})
    assert known.after(_inputs(), NOW).left.get(("backend", "east"), NOW) == NOW


def test_calls_count_for_a_minute_and_while_it_is_unknown_for_longer():
    """A board without calls for longer than that means that the service is gone.

    While telemetry is missing, no service is considered gone.
    """
    west = {**NOBODY, "west": frozenset({"backend"})}

    def placed(age_s, **fields):
        served = {("backend", "east"): NOW - age_s}
        return ("backend", "east") in _build(
            _idle("backend", "east"), placement=west, served=served, **fields
        ).problem.placement

    assert placed(SERVED_S - 1) and not placed(SERVED_S + 1)
    assert placed(SERVED_S + 1, unknown={"east": {"backend": UnknownEntry(NOW, "silent")}})


@pytest.fixture
def mesh(settings, tmp_path):
    return Mesh(settings, tmp_path)


def _east_of_backend(mesh):
    return sum(w.get("east", 0) for key, w in mesh.rules().items() if key[2] == BACKEND)


async def test_a_service_whose_envoys_left_is_gone_though_boards_still_show_calls(mesh):
    """A fresh heartbeat does not list the service, so it loses its calls at once.

    In west, its Envoys may subscribe or not.
    """
    await mesh.solve(NOW)
    assert _east_of_backend(mesh)
    for west in (SERVICES, SERVICES - {"backend"}):
        mesh.placement = {"west": west, "east": SERVICES - {"backend"}}
        await mesh.solve(NOW + 5, kind="placement")
        assert not _east_of_backend(mesh)


async def test_a_service_that_goes_on_serving_calls_without_envoys_comes_back(mesh):
    """Enforcement was withdrawn, for example after a canary.

    Calls half a minute newer than its last Envoy show that the service still exists. It stays gone
    if its boards stop.
    """
    await mesh.solve(NOW)
    mesh.placement = {"west": SERVICES, "east": SERVICES - {"backend"}}
    await mesh.solve(NOW + 5, kind="placement")
    rows = await mesh.solve(NOW + 5 + SETTLED_S, kind="placement")
    assert not any("for backend" in note for note in rows["gateway"]["notes"])
    rows = await mesh.solve(NOW + 7 + SETTLED_S, kind="placement")
    assert any(
        note.startswith("placement: no Envoy subscribes in 'east' for backend")
        for note in rows["gateway"]["notes"]
    )
    mesh.placement = dict.fromkeys(mesh.clusters, SERVICES)
    await mesh.solve(NOW + 50)
    mesh.placement = {**mesh.placement, "east": SERVICES - {"backend"}}
    await mesh.solve(NOW + 55, _idle("backend", "east"), "placement")
    await mesh.solve(NOW + 100, _idle("backend", "east"), "placement")
    assert not _east_of_backend(mesh)


async def test_services_all_of_whose_envoys_left_are_gone_for_a_day(mesh):
    """A whole cluster is scaled to zero. The declaration does not bring its services back."""
    await mesh.solve(NOW)
    mesh.placement = {"west": SERVICES, "east": frozenset()}

    def idle(d):
        for board in ("load", "demand"):
            d[board]["east"].clear()

    await mesh.solve(NOW + 5, idle, "placement")
    await mesh.solve(NOW + 16, idle)
    assert not any(w.get("east") for w in (*mesh.rules().values(), *mesh.rules(OTHER).values()))
    inputs = mesh.solving.observed.last_known.completed(
        dataclasses.replace(_inputs(), placement=mesh.placement)
    )
    assert ("backend", "east") in inputs.left
    assert ("backend", "east") not in mesh.solving.observed.last_known.after(inputs, NOW + 90_000).left


def test_users_of_an_undeclared_service_are_not_refused_where_nobody_subscribes():
    """A heartbeat without Envoys is no evidence about the cluster's services.

    A heartbeat with Envoys, but without this service, is.
    """
    topology = _undeclared()
    assert _build(topology=topology).refusals == ()
    some = dict.fromkeys(NOBODY, frozenset({"frontend", "backend"}))
    assert any("places 'gateway' there" in r for r in _build(topology=topology, placement=some).refusals)
